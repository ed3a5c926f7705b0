// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/check.h"

namespace tidemark {

/// Why something could not be done. The numbers are the process's exit codes (CONTRIBUTING.md lists them).
enum class ErrorCode {
  finding = 1,         ///< A check found something: regression, does not fit, out of memory.
  bad_input = 2,       ///< The user's input is wrong.
  machine_cannot = 3,  ///< No GPU, no MPI, no permission.
  internal = 70,       ///< A fault of ours.
  interrupted = 130,
};

/// What went wrong, where, and what to try. `message` is one sentence that names what was expected;
/// `where` is "file:line: field" as far as known; `hint` is what the user should try next.
struct Error {
  ErrorCode code = ErrorCode::bad_input;
  std::string where;
  std::string message;
  std::string hint;

  /// "where: message" and, when there is one, a second line "hint: ..."; control characters of names are '?'.
  std::string Text() const;
};

Error BadInput(std::string message, std::string hint = {});
/// The same about one key of the job: "layout.pp".
Error BadKey(std::string key, std::string message, std::string hint = {});

/// Either a value or an Error. Callers cannot overlook it (nodiscard) and add context with `At`.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Error error) : state_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & { return Get(); }
  const T& value() const& { return const_cast<Result*>(this)->Get(); }
  T&& value() && { return std::move(Get()); }
  T& operator*() & { return Get(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(Get()); }
  T* operator->() { return &Get(); }
  const T* operator->() const { return &value(); }

  const Error& error() const {
    TIDEMARK_CHECK(!ok());
    return std::get<1>(state_);
  }

  /// The same result, its error placed: `place` is put in front of what is already known of where.
  Result At(std::string_view place) && {
    if (!ok()) {
      Error& error = std::get<1>(state_);
      error.where = error.where.empty() ? std::string(place) : std::string(place) + ": " + error.where;
    }
    return std::move(*this);
  }

 private:
  T& Get() {
    TIDEMARK_CHECK(ok());
    return std::get<0>(state_);
  }

  std::variant<T, Error> state_;
};

struct Done {};
using Status = Result<Done>;

}  // namespace tidemark

#define TIDEMARK_CONCAT_(a, b) a##b
#define TIDEMARK_CONCAT(a, b) TIDEMARK_CONCAT_(a, b)

/// Hands an error on: `TIDEMARK_TRY(Write(file));`
#define TIDEMARK_TRY(expression)                                  \
  do {                                                            \
    if (const auto& tidemark_try = (expression); !tidemark_try) { \
      return tidemark_try.error();                                \
    }                                                             \
  } while (false)

/// Hands an error on or declares the value: `TIDEMARK_ASSIGN(Job job, ReadJob(path));`
#define TIDEMARK_ASSIGN(declaration, expression) \
  TIDEMARK_ASSIGN_(TIDEMARK_CONCAT(result_, __LINE__), declaration, expression)
#define TIDEMARK_ASSIGN_(result, declaration, expression) \
  auto result = (expression);                             \
  if (!result) {                                          \
    return result.error();                                \
  }                                                       \
  declaration = std::move(*result)
