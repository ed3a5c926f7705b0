// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

namespace tidemark {

/// Who called the driver, of the shared libraries on a stack, innermost first, by their paths: the first one behind the
/// driver that is neither the driver nor CUPTI. "" where there is none.
std::string CallerOfDriver(std::span<const std::string> libraries);

/// The same of the stack of the calling thread, which is in a callback of CUPTI's on a call of the driver. Takes some
/// microseconds.
std::string CallerOfDriver();

}  // namespace tidemark
