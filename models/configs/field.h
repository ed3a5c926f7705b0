// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "models/configs/value.h"

namespace tidemark {

/// One key of a config and the member it stands for: how it is read, and how it is written so that reading gives the
/// same value again. A table of these is the whole grammar of a section.
template <class Owner>
struct Field {
  std::string key;
  std::function<Status(Owner&, const ConfigValue&)> read;  ///< the error has no place yet
  std::function<std::string(const Owner&)> write;          ///< empty: the key is not written
  std::string example = {};                                ///< a value it takes, as it is written
  std::vector<std::string> values = {};                    ///< all that it takes, where these are a few names
};

/// Puts `key`, the place of `value` and what to write instead into the error of a value that could not be read.
Error Explain(Error error, const ConfigValue& value, const std::string& key, const std::string& example);

/// Reads one field. `key` is its full name, "layout.dp"; an error says the place, and shows a value that would do.
template <class Owner>
Status ReadField(const Field<Owner>& field, Owner& owner, const ConfigValue& value, const std::string& key) {
  const Status read = field.read(owner, value);
  return read ? read : Status(Explain(read.error(), value, key, field.example));
}

// Forms: how values of one type are spelled. Each has `Result<T> Read(const ConfigValue&)`, `std::string Write(T)` and
// `std::string Example()`, a value in that spelling; one that takes a few names only has them as `Values()`.

/// A whole number between `low` and `high`.
struct WholeNumber {
  std::int64_t low = 0, high = 0;
  Result<std::int64_t> Read(const ConfigValue& value) const;
  std::string Write(std::int64_t number) const { return std::to_string(number); }
  std::string Example() const { return std::to_string(std::clamp<std::int64_t>(8, low, high)); }
};

/// A real number between `low` and `high`.
struct RealNumber {
  double low = 0, high = 1;
  Result<double> Read(const ConfigValue& value) const;
  std::string Write(double number) const { return fmt::format("{}", number); }
  std::string Example() const { return fmt::format("{}", std::clamp(0.5, low, high)); }
};

/// true or false.
struct Truth {
  Result<bool> Read(const ConfigValue& value) const;
  std::string Write(bool truth) const { return truth ? "true" : "false"; }
  std::string Example() const { return "true"; }
  std::vector<std::string> Values() const { return {"false", "true"}; }
};

/// A size: "25 MiB", or a whole number of bytes.
struct Size {
  Bytes low = Bytes(0);
  std::string_view example = "25 MiB";
  Result<Bytes> Read(const ConfigValue& value) const;
  std::string Write(Bytes bytes) const { return std::to_string(bytes.count()); }
  std::string Example() const { return std::string(example); }
};

/// A time with its unit: "4.5 us".
struct Time {
  Result<Nanos> Read(const ConfigValue& value) const;
  std::string Write(Nanos nanos) const { return fmt::format("{} ns", nanos.count()); }
  std::string Example() const { return "4.5 us"; }
};

/// A bandwidth with its unit, above zero: "3.35 TB/s".
struct Bandwidth {
  Result<BytesPerSec> Read(const ConfigValue& value) const;
  std::string Write(BytesPerSec rate) const { return fmt::format("{} B/s", rate.per_second()); }
  std::string Example() const { return "3.35 TB/s"; }
};

/// A rate of arithmetic with its unit, above zero: "989.4 TFLOP/s".
struct Arithmetic {
  Result<FlopsPerSec> Read(const ConfigValue& value) const;
  std::string Write(FlopsPerSec rate) const { return fmt::format("{} FLOP/s", rate.per_second()); }
  std::string Example() const { return "989.4 TFLOP/s"; }
};

/// A word or a path.
struct Word {
  Result<std::string> Read(const ConfigValue& value) const;
  std::string Write(const std::string& word) const;
  std::string Example() const { return "my-name"; }
};

/// A day of the calendar: "2026-01-31".
struct Day {
  Result<std::string> Read(const ConfigValue& value) const;
  std::string Write(const std::string& day) const;
  std::string Example() const { return "2026-01-31"; }
};

/// "expected one of a, b", with the nearest one as a hint; for a word of `later`, that this version does not have it.
Error NotAChoice(const ConfigValue& value, const std::vector<std::string>& choices,
                 const std::vector<std::string>& later);

/// One of a few names. Names in `later` are known, but this version does not support them: it says so instead of
/// guessing.
template <class T>
struct Choice {
  std::vector<std::pair<std::string, T>> choices;
  std::vector<std::string> later = {};

  Result<T> Read(const ConfigValue& value) const {
    for (const auto& [name, meaning] : choices) {
      if (value.kind == ConfigValue::Kind::scalar && value.text == name) {
        return meaning;
      }
    }
    return NotAChoice(value, Values(), later);
  }
  std::string Write(T wanted) const {
    for (const auto& [name, meaning] : choices) {
      if (meaning == wanted) {
        return name;
      }
    }
    return {};
  }
  std::string Example() const { return choices.front().first; }
  std::vector<std::string> Values() const {
    std::vector<std::string> names;
    for (const auto& [name, meaning] : choices) {
      names.push_back(name);
    }
    return names;
  }
};

/// The dtypes a number can be computed in.
Choice<DType> FloatingPoint();

/// FieldAt's, for a member as it is kept.
template <class Owner, class Member, class Form>
Field<Owner> FieldWith(std::string key, Member member, Form form) {
  std::vector<std::string> values;
  if constexpr (requires { form.Values(); }) {
    values = form.Values();
  }
  return {std::move(key),
          [member, form](Owner& owner, const ConfigValue& value) -> Status {
            TIDEMARK_ASSIGN(member(owner), form.Read(value));
            return Done{};
          },
          [member, form](const Owner& owner) { return form.Write(member(const_cast<Owner&>(owner))); }, form.Example(),
          std::move(values)};
}

/// The field for `key`, whose value lies where `member` (a function from Owner& to a reference) says. A lambda that
/// captures nothing becomes a plain function, so that fields of one type and form are compiled once.
template <class Owner, class Member, class Form>
Field<Owner> FieldAt(std::string key, Member member, Form form) {
  using Function = std::invoke_result_t<Member, Owner&> (*)(Owner&);
  using Kept = std::conditional_t<std::is_convertible_v<Member, Function>, Function, Member>;
  return FieldWith<Owner, Kept, Form>(std::move(key), std::move(member), std::move(form));
}

/// Text as a YAML scalar that reads back as the same text.
std::string QuoteYaml(std::string_view text);

}  // namespace tidemark
