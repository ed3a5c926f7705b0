// SPDX-License-Identifier: Apache-2.0
#include "profiler/capture/kernel_name.h"

#include <cxxabi.h>

#include <cctype>
#include <cstddef>
#include <cstdlib>
#include <memory>

namespace tidemark {
namespace {

/// A declaration up to the parenthesis that its last one closes; whole where it does not end with one.
std::string_view WithoutParameters(std::string_view declaration) {
  if (!declaration.ends_with(')')) {
    return declaration;
  }
  int depth = 0;
  std::size_t at = declaration.size();
  while (at-- > 0) {
    depth += declaration[at] == ')' ? 1 : declaration[at] == '(' ? -1 : 0;
    if (depth == 0) {
      break;
    }
  }
  return declaration.substr(0, at);
}

/// Takes the name of a namespace or a class from the end of `text`. What is no plain name stays, with its colons.
bool TakeQualifier(std::string& text) {
  constexpr std::string_view kAnonymous = "(anonymous namespace)";
  if (text.ends_with(kAnonymous)) {
    text.resize(text.size() - kAnonymous.size());
    return true;
  }
  std::size_t begin = text.size();
  while (begin > 0 && (std::isalnum(static_cast<unsigned char>(text[begin - 1])) != 0 || text[begin - 1] == '_')) {
    --begin;
  }
  if (begin == text.size() || text.substr(begin) == "const") {  // of a function that holds a lambda
    return false;
  }
  text.resize(begin);
  return true;
}

}  // namespace

std::string KernelName(std::string_view symbol) {
  std::string mangled(symbol);
  if (!symbol.starts_with("_Z")) {  // "i" would be the name of a type
    return mangled;
  }
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> demangled(
      abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status), &std::free);
  if (status != 0) {
    return mangled;
  }
  const std::string_view declaration = WithoutParameters(demangled.get());
  std::string name;
  for (std::size_t at = 0; at < declaration.size(); ++at) {
    if (declaration.substr(at).starts_with("::") && TakeQualifier(name)) {
      ++at;
    } else if (!declaration.substr(at).starts_with(" >")) {
      name += declaration[at];
    }
  }
  constexpr std::string_view kResult = "void ";  // of every kernel that is a template; others tell none
  return name.starts_with(kResult) ? name.substr(kResult.size()) : name;
}

}  // namespace tidemark
