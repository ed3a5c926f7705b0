// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tidemark {

/// An expression over whole numbers, as a user writes it in Python: `+ - * // %` (with Python's signs), comparisons,
/// `and or not`, parentheses, and a few names. True is 1, false 0; `and` and `or` do not look at a right side that does
/// not matter.
class Expression {
 public:
  /// Refuses text that does not parse and names other than `names`.
  static Result<Expression> Parse(std::string_view text, const std::vector<std::string>& names);

  /// The value for `values`, in the order of the names. Refuses a division by zero, and results beyond 2^53.
  Result<std::int64_t> Evaluate(const std::vector<std::int64_t>& values) const;

  Expression(Expression&&) noexcept;
  Expression& operator=(Expression&&) noexcept;
  ~Expression();

 private:
  struct Parsed;
  explicit Expression(std::unique_ptr<Parsed> parsed);
  std::unique_ptr<Parsed> parsed_;
};

}  // namespace tidemark
