// SPDX-License-Identifier: Apache-2.0
#include "models/configs/translation.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <utility>
#include <vector>

#include "base/text.h"

namespace tidemark {
namespace {

constexpr std::size_t kShort = 4;  ///< letters; shorter names are near to each other by nature: dp, tp, pp
constexpr std::size_t kLong = 7;   ///< letters in which two may be wrong

/// A known field that is called the same in another section, or nearly, or has a word more in front, or nothing.
std::string LikeIt(std::string_view key, std::span<const std::string_view> known) {
  std::vector<std::string> names;
  for (const std::string_view path : known) {
    const std::string_view name = path.substr(path.rfind('.') + 1);
    if (name == key || name.ends_with(fmt::format("_{}", key))) {
      return std::string(path);
    }
    names.emplace_back(name);
  }
  const std::string nearest = Nearest(std::string(key), names);
  const auto found = std::ranges::find_if(known, [&](std::string_view path) { return path.ends_with(nearest); });
  return nearest.empty() || found == known.end() ? std::string() : std::string(*found);
}

Status RefuseMisspelt(const ConfigValue::Entry& field, const std::string& path,
                      std::span<const std::string_view> known) {
  const std::size_t wrong = field.key.size() >= kLong ? 2 : 1;
  if (field.key.size() < kShort || std::ranges::find(known, path) != known.end()) {
    return Done{};
  }
  for (const std::string_view candidate : known) {
    const std::size_t longer = std::max(path.size(), candidate.size());
    if (longer - std::min(path.size(), candidate.size()) <= wrong && EditDistance(path, candidate) <= wrong) {
      return ErrorAt(field.value, path, "there is no such field", fmt::format("did you mean {}?", candidate));
    }
  }
  return Done{};
}

Status RefuseUnknownSections(const ConfigValue& root, const FieldTables& tables) {
  if (tables.version.empty()) {
    return Done{};
  }
  for (const ConfigValue::Entry& section : root.fields) {
    const bool closed = std::ranges::find(tables.closed, section.key, &ClosedSection::path) != tables.closed.end();
    if (!closed && std::ranges::find(tables.harmless, section.key) == tables.harmless.end()) {
      return ErrorAt(section.value, section.key, "is no section that this version knows, and may move memory or time",
                     fmt::format("fields are those of {}; remove it to price the job without", tables.version));
    }
  }
  return Done{};
}

Status RefuseUnknown(const ConfigValue& root, std::span<const ClosedSection> sections,
                     std::span<const std::string_view> known) {
  for (const ClosedSection& section : sections) {
    const ConfigValue* fields = Given(root, section.path);
    if (fields != nullptr && !fields->is_map()) {
      return ErrorAt(*fields, section.path, fmt::format("expected a section, found {}", Describe(*fields)),
                     "its fields are what is read: write them in braces, or indented below it");
    }
    for (const ConfigValue::Entry& field : fields == nullptr ? std::vector<ConfigValue::Entry>() : fields->fields) {
      const std::string path = fmt::format("{}.{}", section.path, field.key);
      const bool leads_on =
          std::ranges::any_of(known, [&](std::string_view one) { return one.starts_with(path + "."); });
      if (!field.value.is_null() && !leads_on && std::ranges::find(known, path) == known.end() &&
          std::ranges::find(section.harmless, field.key) == section.harmless.end()) {
        const std::string like = LikeIt(field.key, known);
        return ErrorAt(
            field.value, path, "is not known to this version, and may move memory or time",
            like.empty() ? "remove it to price the job without" : fmt::format("did you mean {}? Else remove it", like));
      }
    }
  }
  return Done{};
}

}  // namespace

const ConfigValue* Given(const ConfigValue& root, std::string_view path) {
  const ConfigValue* value = root.FindPath(path);
  return value == nullptr || value->is_null() ? nullptr : value;
}

ConfigValue Retold(const ConfigValue& value, std::string text) {
  ConfigValue retold = MakeScalar(std::move(text), value.source);
  retold.where = value.where;
  return retold;
}

bool IsSameValue(std::string_view one, std::string_view other) {
  const auto number = [](std::string_view word, double& read) {
    const auto [rest, code] = std::from_chars(word.data(), word.data() + word.size(), read);
    return code == std::errc() && rest == word.data() + word.size();
  };
  double first = 0, second = 0;
  return number(one, first) && number(other, second) ? first == second
                                                     : LowerCase(std::string(one)) == LowerCase(std::string(other));
}

ConfigValue AssumedMachine() { return MakeScalar("h100-sxm-80gb", "assumed"); }

bool NamesNetwork(const Settings& settings) {
  const bool sizes = settings.contains("network.layers") && settings.contains("network.hidden");
  return sizes || settings.contains("network") || settings.contains("network.from") ||
         Speaks(settings, "network.table") || Speaks(settings, "network.dual_encoder");
}

bool Speaks(const Settings& settings, std::string_view key) {
  const auto found = settings.lower_bound(std::string(key));
  const auto below = settings.lower_bound(fmt::format("{}.", key));
  return (found != settings.end() && found->first == key) ||
         (below != settings.end() && below->first.starts_with(fmt::format("{}.", key)));
}

Status RefuseOthers(const ConfigValue& root, std::span<const OneValue> fields) {
  for (const OneValue& field : fields) {
    const ConfigValue* value = Given(root, field.path);
    if (value != nullptr && !(value->kind == ConfigValue::Kind::scalar && IsSameValue(value->text, field.value))) {
      const std::string_view modelled = field.value.empty() ? "\"\"" : field.value;
      return ErrorAt(*value, field.path,
                     fmt::format("{} is not supported by this version: {}", Describe(*value), field.reason),
                     field.hint.empty() ? fmt::format("set it to {} to price the job without", modelled)
                                        : std::string(field.hint));
    }
  }
  return Done{};
}

Status RefuseMisspelt(const ConfigValue& root, std::span<const std::string_view> sections,
                      std::span<const std::string_view> known) {
  for (const std::string_view section : sections) {
    const ConfigValue* fields = section.empty() ? &root : root.FindPath(section);
    if (fields == nullptr) {
      continue;
    }
    for (const ConfigValue::Entry& field : fields->fields) {
      TIDEMARK_TRY(
          RefuseMisspelt(field, section.empty() ? field.key : fmt::format("{}.{}", section, field.key), known));
    }
  }
  return Done{};
}

Status CheckFields(const ConfigValue& root, const FieldTables& tables) {
  TIDEMARK_TRY(RefuseUnknownSections(root, tables));
  std::vector<std::string_view> known(tables.read.begin(), tables.read.end());
  for (const std::span<const OneValue> table : {tables.one_value, tables.one_value_at_times}) {
    std::ranges::transform(table, std::back_inserter(known), &OneValue::path);
  }
  TIDEMARK_TRY(RefuseMisspelt(root, tables.sections, known));
  TIDEMARK_TRY(RefuseUnknown(root, tables.closed, known));
  return RefuseOthers(root, tables.one_value);
}

Status RefuseUnsaid(const ConfigValue& root, std::string_view tool, std::span<const Unsaid> unsaid,
                    const Settings& read, const Settings& given) {
  std::vector<std::string_view> meanings;
  std::string hint = "add";
  for (const Unsaid& missing : unsaid) {
    const bool said = missing.key == "network" ? NamesNetwork(read) || NamesNetwork(given)
                                               : Speaks(read, missing.key) || Speaks(given, missing.key);
    if (!said) {
      meanings.push_back(missing.meaning);
      hint += fmt::format(" --set {}={}", missing.key, missing.example);
    }
  }
  if (meanings.empty()) {
    return Done{};
  }
  return ErrorAt(root, {}, fmt::format("{}'s config does not say {}", tool, fmt::join(meanings, ", nor ")),
                 std::move(hint));
}

}  // namespace tidemark
