// SPDX-License-Identifier: Apache-2.0
#include "reports/render/check_junit.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <pugixml.hpp>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "traces/utf8.h"

namespace tidemark {
namespace {

/// XML 1.0 has no control characters, not even escaped ones, and neither U+FFFE nor U+FFFF.
std::string Clean(const std::string& raw) {
  std::string text = Utf8(raw);
  for (const std::string_view none : {"\xef\xbf\xbe", "\xef\xbf\xbf"}) {
    for (std::size_t at = text.find(none); at != std::string::npos; at = text.find(none, at)) {
      text.replace(at, none.size(), " ");
    }
  }
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f; }, ' ');
  return text;
}

void Set(pugi::xml_node node, const char* name, const std::string& value) {
  node.append_attribute(name).set_value(Clean(value).c_str());
}

class Suite {
 public:
  explicit Suite(pugi::xml_node node) : node_(node) {}

  pugi::xml_node AddCase(const CheckedScenario& scenario, const char* metric) {
    ++tests_;
    pugi::xml_node test = node_.append_child("testcase");
    Set(test, "classname", scenario.name);
    Set(test, "name", metric);
    if (!scenario.file.empty()) {
      Set(test, "file", scenario.file);
    }
    if (scenario.line > 0) {
      Set(test, "line", std::to_string(scenario.line));
    }
    return test;
  }

  /// Why a case did not pass: an error where it could not be checked.
  void Fail(pugi::xml_node test, PeakVerdict verdict, const std::string& sentence, const std::string& hint) {
    const bool is_error = verdict == PeakVerdict::error;
    ++(is_error ? errors_ : failures_);
    pugi::xml_node why = test.append_child(is_error ? "error" : "failure");
    Set(why, "message", sentence);
    Set(why, "type", std::string(Name(verdict)));
    why.text().set(Clean(hint.empty() ? sentence : fmt::format("{}\nhint: {}", sentence, hint)).c_str());
  }

  void Count(pugi::xml_node node) const {
    Set(node, "tests", std::to_string(tests_));
    Set(node, "failures", std::to_string(failures_));
    Set(node, "errors", std::to_string(errors_));
    Set(node, "skipped", "0");
  }

 private:
  pugi::xml_node node_;
  int tests_ = 0, failures_ = 0, errors_ = 0;
};

/// What is not known has none.
void AddProperties(pugi::xml_node test, std::initializer_list<std::pair<const char*, std::optional<Bytes>>> numbers) {
  pugi::xml_node properties;
  for (const auto& [name, bytes] : numbers) {
    if (bytes) {
      properties = properties.empty() ? test.append_child("properties") : properties;
      pugi::xml_node property = properties.append_child("property");
      Set(property, "name", name);
      Set(property, "value", std::to_string(bytes->count()));
    }
  }
}

void AddPeak(const CheckReport& report, const CheckedScenario& scenario, Suite& suite) {
  CheckedScenario alone = scenario;  // the budget is a case of its own
  alone.over_budget = false;
  pugi::xml_node test = suite.AddCase(scenario, "peak memory");
  AddProperties(
      test, {{"peak_bytes", scenario.peak}, {"baseline_bytes", scenario.baseline}, {"delta_bytes", scenario.delta()}});
  if (alone.Fails()) {
    suite.Fail(test, alone.verdict(), CheckSentence(alone), CheckHint(report, alone));
  } else {
    test.append_child("system-out").text().set(Clean(CheckSentence(alone)).c_str());
  }
}

void AddBudget(const CheckReport& report, const CheckedScenario& scenario, Suite& suite) {
  pugi::xml_node test = suite.AddCase(scenario, "budget");
  AddProperties(test, {{"device_bytes", scenario.device}, {"budget_bytes", scenario.budget}});
  if (!scenario.device) {
    suite.Fail(test, PeakVerdict::error, CheckSentence(scenario), CheckHint(report, scenario));
  } else if (scenario.over_budget) {
    suite.Fail(test, PeakVerdict::over_budget, CheckSentence(scenario), CheckHint(report, scenario));
  }
}

}  // namespace

std::string CheckJunit(const CheckReport& report) {
  pugi::xml_document document;
  pugi::xml_node declaration = document.append_child(pugi::node_declaration);
  Set(declaration, "version", "1.0");
  Set(declaration, "encoding", "UTF-8");
  pugi::xml_node suites = document.append_child("testsuites");
  pugi::xml_node node = suites.append_child("testsuite");
  Set(suites, "name", "tidemark check");
  Set(node, "name", report.scenarios_path);
  Suite suite(node);
  for (const CheckedScenario& scenario : report.scenarios) {
    AddPeak(report, scenario, suite);
    if (scenario.budget) {
      AddBudget(report, scenario, suite);
    }
  }
  suite.Count(suites);
  suite.Count(node);
  std::ostringstream out;
  document.save(out, "  ", pugi::format_default, pugi::encoding_utf8);
  return out.str();
}

}  // namespace tidemark
