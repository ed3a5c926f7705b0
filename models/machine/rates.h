// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>

#include "base/result.h"
#include "models/configs/value.h"
#include "models/machine/machine.h"
#include "models/network/operator.h"

namespace tidemark {

// Measured rates of a machine, as `tidemark calibrate` writes them. A roofline with two numbers is far off for kernels
// on a processor's cores, whose rate depends on the kind, on the dtype they convert and on the cache that their
// operands fit in. So a machine may have a curve for each kind of kernel: work a second by size. What the size and the
// work of an operator are is said here and nowhere else: who measures and who predicts mean the same.
//
//   kind                                      size                        work
//   gemm                                      smallest of m, n and k      operations
//   attention, attention_backward             sequence                    operations
//   all others                                bytes moved                 bytes moved

/// A kind of kernel that a machine may have a curve for: the end of its key in a machine file.
struct RatedKind {
  std::string key;  ///< "gemm.fp32"
  bool arithmetic;  ///< work is counted in operations, not in bytes
};
std::span<const RatedKind> RatedKinds();

struct RatedWork {
  std::string key;
  std::int64_t size = 0;
  double work = 0;
};

/// Nothing for what has no kind: rows of a table network, and dtypes that nobody measures.
///
/// An operator that streams through memory once (Pointwise) does not say its dtypes. It is taken for one that only
/// writes or copies ("stream") where it moves up to 4 bytes an element, for one of 16-bit tensors up to 10 (a GLU's
/// backward pass moves five), and else for one of fp32; and for one that takes an exponential ("activation") from 5
/// operations an element on.
std::optional<RatedWork> WorkOf(const Operator& op);

/// The curve at a size: a power law between two points, its ends beyond them.
double RateAt(const RateCurve& curve, std::int64_t size);

/// "64: 41.2 GFLOP/s, 256: 90 GFLOP/s", or of GB/s: how a curve is spelled in a machine file.
struct RateForm {
  bool arithmetic = true;
  Result<RateCurve> Read(const ConfigValue& value) const;
  std::string Write(const RateCurve& curve) const;
  std::string Example() const;
};

}  // namespace tidemark
