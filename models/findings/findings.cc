// SPDX-License-Identifier: Apache-2.0
#include "models/findings/findings.h"

#include <algorithm>

#include "base/check.h"
#include "models/configs/value.h"

namespace tidemark {
namespace {

std::string TextOf(const ConfigValue& entry, std::string_view key) {
  const ConfigValue* value = entry.Find(key);
  return value == nullptr ? std::string() : value->text;
}

std::vector<KnownFinding> ReadFindings() {
  std::vector<KnownFinding> findings;
  for (const EmbeddedFile& file : FindingFiles()) {
    const Result<ConfigValue> root = ParseConfig(file.text, std::string(file.name));
    TIDEMARK_CHECK(root.ok());
    for (const ConfigValue::Entry& entry : root->fields) {
      const ConfigValue& value = entry.value;
      findings.push_back({entry.key, TextOf(value, "kind"), TextOf(value, "title"), TextOf(value, "paragraph"),
                          TextOf(value, "effect"), TextOf(value, "hint"), TextOf(value, "link"),
                          TextOf(value, "about") == "memory", TextOf(value, "about") == "numbers",
                          TextOf(value, "example")});
    }
  }
  return findings;
}

}  // namespace

const std::vector<KnownFinding>& KnownFindings() {
  static const std::vector<KnownFinding> findings = ReadFindings();
  return findings;
}

const KnownFinding* FindKnownFinding(std::string_view id) {
  const std::vector<KnownFinding>& all = KnownFindings();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const KnownFinding& finding) { return finding.id == id; });
  return found == all.end() ? nullptr : &*found;
}

bool IsAboutNumbers(const Lint& lint) {
  const KnownFinding* finding = FindKnownFinding(lint.explained_by());
  return finding != nullptr && finding->about_numbers;
}

}  // namespace tidemark
