// SPDX-License-Identifier: Apache-2.0
#include "sim/matrix/features.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "models/configs/value.h"

namespace tidemark {
namespace {

constexpr std::array kVerdicts = {std::pair(Verdict::wrong, std::string_view("wrong")),
                                  std::pair(Verdict::refused, std::string_view("refused")),
                                  std::pair(Verdict::does_not_defer, std::string_view("does-not-defer")),
                                  std::pair(Verdict::changes_memory, std::string_view("changes-memory")),
                                  std::pair(Verdict::no_such_setting, std::string_view("no-such-setting")),
                                  std::pair(Verdict::not_modelled, std::string_view("not-modelled")),
                                  std::pair(Verdict::works, std::string_view("works"))};

const std::vector<ConfigValue>& ItemsOf(const ConfigValue& entry, std::string_view key) {
  static const std::vector<ConfigValue> none;
  const ConfigValue* list = entry.Find(key);
  return list == nullptr ? none : list->items;
}

std::string TextOf(const ConfigValue& entry, std::string_view key) {
  const ConfigValue* value = entry.Find(key);
  return value == nullptr ? std::string() : value->text;
}

std::vector<std::string> Texts(const std::vector<ConfigValue>& items) {
  std::vector<std::string> texts;
  for (const ConfigValue& item : items) {
    texts.push_back(item.text);
  }
  return texts;
}

Verdict VerdictOf(const std::string& word) {
  const auto* const found =
      std::find_if(kVerdicts.begin(), kVerdicts.end(), [&](const auto& verdict) { return verdict.second == word; });
  TIDEMARK_CHECK(found != kVerdicts.end());
  return found->first;
}

Feature ReadFeature(const ConfigValue::Entry& entry) {
  const ConfigValue& value = entry.value;
  Feature feature;
  feature.name = entry.key;
  feature.group = TextOf(value, "group");
  feature.title = TextOf(value, "title");
  for (const ConfigValue& way : ItemsOf(value, "ways")) {
    feature.ways.push_back(Texts(way.items));
  }
  feature.against = Texts(ItemsOf(value, "against"));
  feature.needs = Texts(ItemsOf(value, "needs"));
  feature.paragraph = TextOf(value, "paragraph");
  feature.hint = TextOf(value, "hint");
  feature.link = TextOf(value, "link");
  for (const ConfigValue& fact : ItemsOf(value, "facts")) {
    feature.facts.push_back(
        {VerdictOf(TextOf(fact, "verdict")), TextOf(fact, "finding"), Texts(ItemsOf(fact, "strategies"))});
  }
  return feature;
}

MatrixData Read() {
  MatrixData data;
  for (const EmbeddedFile& file : MatrixFiles()) {
    const Result<ConfigValue> root = ParseConfig(file.text, std::string(file.name));
    TIDEMARK_CHECK(root.ok() && root->Find("features") != nullptr);
    data.about = TextOf(*root, "about");
    const std::vector<std::string> jobs = Texts(ItemsOf(*root, "jobs"));
    data.jobs.insert(data.jobs.end(), jobs.begin(), jobs.end());
    for (const ConfigValue::Entry& entry : root->Find("features")->fields) {
      data.features.push_back(ReadFeature(entry));
    }
  }
  return data;
}

}  // namespace

std::string_view Name(Verdict verdict) {
  return std::find_if(kVerdicts.begin(), kVerdicts.end(), [&](const auto& known) { return known.first == verdict; })
      ->second;
}

const MatrixData& ReadMatrixData() {
  static const MatrixData data = Read();
  return data;
}

}  // namespace tidemark
