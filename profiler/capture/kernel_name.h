// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace tidemark {

/// A kernel's name for people: `_ZN3lib4cuda3RunINS_3AddIfEEEEvlT_` is "Run<Add<float>>". Namespaces, the result and
/// the parameters are left out; a name that is not mangled as the Itanium C++ ABI does it stays as it is.
std::string KernelName(std::string_view symbol);

}  // namespace tidemark
