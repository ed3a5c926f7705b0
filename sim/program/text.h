// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "sim/program/program.h"

namespace tidemark {

// The text form of a program, one declaration or leaf a line:
//
//     role 0 "stage 0", 8 ranks
//
//     groups:
//       dp  8 ranks, 8 per node
//
//     streams:
//       host    host
//       main    compute
//       gather  collective
//
//     events:
//       gathered
//
//     buffers:
//       shard[32]  parameter   1409286  fp32  born on main, resident, kept, holds own rows of 8 from layer
//       full[2]    parameter  11274288  bf16  born on gather, holds own whole of 1 from layer
//       bucket     bucket         8192  bf16  born on main, resident, kept
//       slot[2]    bucket         4096  bf16  slices of bucket at 4096 and bucket at 0
//
//     program:
//       begin forward microbatch 0
//       repeat layer 0..31 x32 {
//         alloc full[layer%2]
//         all_gather layer.gather 11274288 bf16 over dp on gather reads shard[layer] writes full[layer%2]
//         record gathered on gather
//         wait gathered on main
//         ...
//       }
//       end forward
//
// A `#` begins a comment; blank lines and indentation mean nothing. Names other than letters, digits, `_`, `.`, `:`
// and `/` are quoted. Attributes of an operator that have their default value are left out, and so are `sum|avg` for
// no reduction, `times R` for factor 1, and the microbatch of a phase that belongs to the whole step. A phase of a
// chunk of one side of a dual encoder's pairs begins as `begin C_forward query chunk 0`. What a buffer `holds` of the
// model (holding.h) are blocks or parameters: `layer`, `layer.wq[3]`, `layer[3..7]`. Collectives `in flight 3` slow the
// kernels `beside flight 3` (sim/cost/overlap.h).

/// The program as text that a person reads and `ParseProgram` turns back into the same program. Names are unique within
/// their table; every program can be printed, a dangling id as "?7".
std::string Print(const Program& program);

/// One node on one line, as Print shows it.
std::string Print(const Program& program, const Node& node);

/// "full[3]": a buffer as Print shows it.
std::string Print(const Program& program, const BufferRef& buffer);

/// Inverse of Print: Print(*ParseProgram(text)) == text for every text that Print made of a well-formed program. Errors
/// name line and token. Operation and loop names are numbered in the order in which they appear.
Result<Program> ParseProgram(std::string_view text);

/// Every Repeat written out: the same leaves in the same order, indices constant.
Program Unroll(const Program& program);

}  // namespace tidemark
