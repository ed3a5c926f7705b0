// SPDX-License-Identifier: Apache-2.0
#include "traces/formats/torch_settings.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "base/quantity.h"
#include "base/text.h"

namespace tidemark {
namespace {

using Kind = PickleValue::Kind;

constexpr std::string_view kKind = "kind=torch-caching";
constexpr std::int64_t kMiB = std::int64_t{1} << 20;

struct Knob {
  std::string_view torch;  ///< in PYTORCH_CUDA_ALLOC_CONF
  std::string_view name;   ///< of a job's `allocator`
  bool in_mebibytes = false;
};
constexpr Knob kKnobs[] = {
    {"expandable_segments", "expandable_segments"},
    {"max_split_size_mb", "max_split_size", true},
    {"max_non_split_rounding_mb", "max_non_split_rounding", true},
    {"large_segment_size_mb", "large_segment_size", true},
    {"roundup_power2_divisions", "roundup_power2_divisions"},
    {"per_process_memory_fraction", "memory_fraction"},
    {"garbage_collection_threshold", "garbage_collection_threshold"},
};

/// "a:1,b:[256:1,512:2]" by its names, without spaces and brackets.
std::map<std::string, std::string, std::less<>> KnobsOf(std::string_view conf) {
  std::map<std::string, std::string, std::less<>> values;
  std::string name, value;
  bool in_name = true, in_brackets = false;
  for (const char letter : std::string(conf) + ",") {
    if (letter == '[' || letter == ']') {
      in_brackets = letter == '[';
    } else if (letter == ',' && !in_brackets) {
      values[std::exchange(name, "")] = std::exchange(value, "");
      in_name = true;
    } else if (letter == ':' && in_name) {
      in_name = false;
    } else if (letter != ' ') {
      (in_name ? name : value) += letter;
    }
  }
  return values;
}

/// Whether a value is one that PyTorch may have taken: a number, a word, a list of pairs of numbers.
bool IsPlain(std::string_view value) {
  constexpr std::string_view kLetters = "0123456789.,:>abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  return !value.empty() && value.find_first_not_of(kLetters) == std::string_view::npos;
}

/// {"1": 0, "2": 4, ...}, MiB and what sizes from there on are divided by, as PYTORCH_CUDA_ALLOC_CONF lists them. Empty
/// where none is.
std::string DivisionsOf(std::span<const PickleValue> by_size) {
  std::string text;
  bool any = false;
  for (std::size_t i = 0; i + 1 < by_size.size(); i += 2) {
    if (by_size[i + 1].kind != Kind::integer || !ParseWhole(by_size[i].text())) {
      return "";
    }
    any = any || by_size[i + 1].number != 0;
    text += fmt::format("{}{}:{}", text.empty() ? "" : ",", by_size[i].text(), by_size[i + 1].number);
  }
  return any ? text : "";
}

std::string SettingOf(const Knob& knob, const std::string& value) {
  return fmt::format("{}={}", knob.name,
                     knob.in_mebibytes  ? value + "MiB"
                     : value == "True"  ? "true"
                     : value == "False" ? "false"
                                        : value);
}

/// How PYTORCH_CUDA_ALLOC_CONF writes a value; nothing where it cannot.
std::optional<std::string> ConfValue(const Knob& knob, std::string_view value) {
  if (knob.in_mebibytes) {
    const Result<Bytes> bytes = ParseBytes(value);
    return bytes && bytes->count() % kMiB == 0 ? std::optional(std::to_string(bytes->count() / kMiB)) : std::nullopt;
  }
  if (value.find(':') != std::string_view::npos) {
    const bool quoted = value.starts_with('"');  // as YAML needs it
    return fmt::format("[{}]", quoted ? value.substr(1, value.size() - 2) : value);
  }
  return value == "true" ? "True" : value == "false" ? "False" : std::string(value);
}

}  // namespace

std::vector<std::string> TorchSettings(const PickleHeap& heap, PickleValue settings) {
  std::map<std::string, PickleValue, std::less<>> by_key;
  const std::span<const PickleValue> items = heap.Items(settings);
  for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
    by_key[std::string(items[i].text())] = items[i + 1];
  }
  const auto value = [&](const char* key) {
    const auto found = by_key.find(key);
    return found == by_key.end() ? PickleValue() : found->second;
  };
  if (value("expandable_segments").kind != Kind::boolean) {
    return {};
  }
  const auto conf = KnobsOf(value("PYTORCH_CUDA_ALLOC_CONF").text());
  std::vector<std::string> told = {std::string(kKind)};
  if (value("expandable_segments").number != 0) {
    told.emplace_back("expandable_segments=true");
  }
  if (const PickleValue most = value("max_split_size"); most.kind == Kind::integer && most.number > 0) {
    told.push_back(fmt::format("max_split_size={}", most.number));
  }
  for (const Knob& knob : kKnobs) {
    if (const auto found = conf.find(knob.torch);
        !by_key.contains(knob.name) && found != conf.end() && IsPlain(found->second)) {
      told.push_back(SettingOf(knob, found->second));
    }
  }
  if (const PickleValue part = value("garbage_collection_threshold");
      part.kind == Kind::real && part.real > 0 && conf.contains("per_process_memory_fraction")) {
    told.push_back(fmt::format("garbage_collection_threshold={}", part.real));
  }
  if (const std::string divisions = DivisionsOf(heap.Items(value("roundup_power2_divisions"))); !divisions.empty()) {
    told.push_back("roundup_power2_divisions=" + divisions);
  }
  return told;
}

std::string TorchAllocConf(std::span<const std::string> settings) {
  std::string conf;
  if (settings.empty() || settings.front() != kKind) {
    return conf;
  }
  for (const Knob& knob : kKnobs) {
    for (const std::string& setting : settings) {
      const std::size_t equals = setting.find('=');
      if (setting.substr(0, equals) != knob.name) {
        continue;
      }
      if (const auto value = ConfValue(knob, std::string_view(setting).substr(equals + 1))) {
        conf += fmt::format("{}{}:{}", conf.empty() ? "" : ",", knob.torch, *value);
      }
    }
  }
  return conf;
}

}  // namespace tidemark
