// SPDX-License-Identifier: Apache-2.0
#include "cli/list_findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "models/findings/findings.h"

namespace tidemark {
namespace {

std::string AsJson() {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const KnownFinding& finding : KnownFindings()) {
    list.push_back({{"name", finding.id},
                    {"summary", finding.title},
                    {"kind", finding.kind},
                    {"paragraph", finding.paragraph},
                    {"effect", finding.effect},
                    {"hint", finding.hint},
                    {"link", finding.link},
                    {"example", finding.example}});
  }
  return list.dump(2) + "\n";
}

std::string AsMarkdown() {
  std::string text;
  for (const KnownFinding& finding : KnownFindings()) {
    text += fmt::format("### {}\n\n`{}` ({})\n\n{}\n\n", finding.title, finding.id, finding.kind, finding.paragraph);
    text += fmt::format("- effect: {}\n- hint: {}\n", finding.effect, finding.hint);
    text += finding.example.empty() ? "" : fmt::format("- example: `tidemark {}`\n", finding.example);
    text += fmt::format("- more: <{}>\n\n", finding.link);
  }
  return text;
}

std::string AsText() {
  std::size_t width = 0;
  for (const KnownFinding& finding : KnownFindings()) {
    width = std::max(width, finding.id.size());
  }
  std::string text;
  for (const KnownFinding& finding : KnownFindings()) {
    text += fmt::format("{:<{}}  {}\n", finding.id, width, finding.title);
  }
  return text;
}

}  // namespace

std::string ListFindings(OutputFormat format) {
  return format == OutputFormat::json ? AsJson() : format == OutputFormat::markdown ? AsMarkdown() : AsText();
}

}  // namespace tidemark
