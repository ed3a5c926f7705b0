// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tidemark {

/// An expression over whole numbers, as a user writes it in Python: `+ - * // %` (with Python's signs), comparisons
/// (`0 < i < 3` compares i with both), `and or not`, `True False`, parentheses, and a few names. True is 1, false 0;
/// `and`, `or` and a comparison that already failed do not look at what stands to the right.
class Expression {
 public:
  /// Refuses text that is not such an expression (a part of Python: no underscores in numbers), names other than
  /// `names`, more than 1,000 characters, and more than 100 parentheses within each other.
  static Result<Expression> Parse(std::string_view text, const std::vector<std::string>& names);

  /// The value for `values`, in the order of the names. Refuses a division by zero, and what does not fit into 64 bits.
  Result<std::int64_t> Evaluate(const std::vector<std::int64_t>& values) const;

 private:
  friend class ExpressionBuilder;

  enum class Operation : std::uint8_t {
    number,  ///< `left` is its value
    name,    ///< `left` is its index
    negative,
    truth_of_not,
    logical_and,
    logical_or,
    comparison,  ///< `left` is the first side, `right` the first link
    // Links of a comparison: `left` is the side to compare the one before with, `right` the next link or kNone.
    less,
    less_equal,
    greater,
    greater_equal,
    equal,
    not_equal,
    // Of two sides.
    plus,
    minus,
    times,
    floor_divide,
    modulo,
  };
  static constexpr std::int64_t kNone = -1;
  /// Sides are indices of nodes.
  struct Node {
    Operation operation = Operation::number;
    std::int64_t left = 0, right = 0;
    std::size_t at = 0;  ///< where in the text it stands; of what cannot go wrong 0
  };

  Result<std::int64_t> Evaluate(std::int64_t node, const std::vector<std::int64_t>& values) const;
  Result<std::int64_t> Compare(std::int64_t left, std::int64_t link, const std::vector<std::int64_t>& values) const;
  static bool Holds(Operation operation, std::int64_t left, std::int64_t right);
  Result<std::int64_t> Arithmetic(const Node& node, std::int64_t left, std::int64_t right) const;

  std::string text_;
  std::size_t names_ = 0;
  std::vector<Node> nodes_;
  std::int64_t root_ = 0;
};

}  // namespace tidemark
