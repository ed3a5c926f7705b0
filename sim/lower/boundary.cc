// SPDX-License-Identifier: Apache-2.0
#include "sim/lower/boundary.h"

#include <fmt/format.h>

#include <utility>

#include "base/text.h"

namespace tidemark {
namespace {

constexpr const char* kSyncKey = "sync.expression";

Result<Expression> ParseAt(const char* key, const std::string& text) {
  Result<Expression> expression = Expression::Parse(text, {"i", "steps"});
  return std::move(expression).At(key);
}

}  // namespace

Result<Boundary> Boundary::Of(const Job& job) {
  const Sync& sync = job.axes.sync;
  const bool alike = sync.step_expression.empty();
  const char* const step_key = alike ? kSyncKey : "sync.step_expression";
  TIDEMARK_ASSIGN(Expression synchronises, ParseAt(kSyncKey, sync.expression));
  TIDEMARK_ASSIGN(Expression steps, ParseAt(step_key, alike ? sync.expression : sync.step_expression));
  return Boundary(std::move(synchronises), std::move(steps), step_key, job.accumulation_steps);
}

Result<Boundary::Place> Boundary::At(std::int64_t i) const {
  const Result<std::int64_t> synchronise = synchronises_.Evaluate({i, microbatches_});
  const Result<std::int64_t> step = steps_.Evaluate({i, microbatches_});
  if (!synchronise || !step) {
    const Error& error = !synchronise ? synchronise.error() : step.error();
    return BadKey(!synchronise ? kSyncKey : step_key_,
                  fmt::format("{} where i is {} and steps is {}", error.message, i, microbatches_), error.hint);
  }
  return Place{*synchronise != 0, *step != 0};
}

Result<std::vector<Boundary::Place>> Boundary::Places() const {
  std::vector<Place> places;
  for (std::int64_t i = 0; i < microbatches_; ++i) {
    TIDEMARK_ASSIGN(const Place place, At(i));
    places.push_back(place);
  }
  return places;
}

Error Boundary::NeverSteps() const {
  return BadKey(step_key_, fmt::format("the optimizer never steps within {}", Counted(microbatches_, "microbatch")),
                "an ordinary window is (i + 1) % steps == 0");
}

}  // namespace tidemark
