// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace tidemark {

/// Something that runs but that its user probably does not want. models/findings explains `id`, or, where one id covers
/// several mistakes, `cause`.
struct Lint {
  std::string id, severity, message, hint = {};  ///< severity: note, warning, error; hint: what to change
  std::string cause = {};                        ///< empty: what `id` says

  /// Under which id models/findings explains it.
  const std::string& explained_by() const { return cause.empty() ? id : cause; }
  friend bool operator==(const Lint&, const Lint&) = default;
};

}  // namespace tidemark
