// SPDX-License-Identifier: Apache-2.0
#include "profiler/capture/kernel_name.h"

#include <cxxabi.h>

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <regex>

namespace tidemark {
namespace {

/// A declaration up to the parenthesis that its last one closes.
std::string WithoutParameters(std::string declaration) {
  int depth = 0;
  for (std::size_t at = declaration.size(); at-- > 0;) {
    depth += declaration[at] == ')' ? 1 : declaration[at] == '(' ? -1 : 0;
    if (depth == 0) {
      declaration.resize(at);
      break;
    }
  }
  return declaration;
}

}  // namespace

std::string KernelName(std::string_view symbol) {
  std::string name(symbol);
  if (!symbol.starts_with("_Z")) {  // "i" would be the name of a type
    return name;
  }
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> demangled(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), &std::free);
  if (status != 0) {
    return name;
  }
  static const std::regex qualifier(R"((\w+|\(anonymous namespace\)|\{[^{}]*\})::)"), space(" >");
  name = std::regex_replace(WithoutParameters(demangled.get()), qualifier, "");
  name = std::regex_replace(name, space, ">");
  constexpr std::string_view kResult = "void ";  // of every kernel that is a template; others tell none
  return name.starts_with(kResult) ? name.substr(kResult.size()) : name;
}

}  // namespace tidemark
