// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace tidemark {

/// A kernel's name for people: `_ZN3lib4cuda3RunINS_3AddIfEEEEvlT_` is "Run<Add<float>>". The result, the parameters
/// and the names of namespaces and classes are left out, so kernels of several that are called the same look alike. A
/// symbol that is not mangled as the Itanium C++ ABI does it, or is too long for the C++ library, stays as it is.
std::string KernelName(std::string_view symbol);

}  // namespace tidemark
