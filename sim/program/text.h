// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "sim/program/program.h"

namespace tidemark {

/// The program as text that a person reads and `ParseProgram` turns back into the same program.
std::string Print(const Program& program);

/// Inverse of Print: Print(*ParseProgram(text)) == text for every text that Print made. Errors name line and token.
Result<Program> ParseProgram(std::string_view text);

/// Every Repeat written out: the same leaves in the same order, indices constant.
Program Unroll(const Program& program);

}  // namespace tidemark
