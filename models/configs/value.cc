// SPDX-License-Identifier: Apache-2.0
#include "models/configs/value.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include "models/configs/json.h"

namespace tidemark {
namespace {

/// Far more than any config holds, far less than nested aliases can expand to.
constexpr int kMostValues = 200'000;
constexpr int kDeepest = 64;

class Converter {
 public:
  explicit Converter(const std::string& path) : path_(path), file_(std::filesystem::path(path).filename().string()) {}

  Result<ConfigValue> Convert(const YAML::Node& node, int depth) {
    ConfigValue value;
    value.where = At(path_, node.Mark());
    value.source = At(file_, node.Mark());
    if (++values_ > kMostValues || depth > kDeepest) {
      return Error{ErrorCode::bad_input, value.where, "holds more values than a config can", {}};
    }
    switch (node.Type()) {
      case YAML::NodeType::Undefined:
      case YAML::NodeType::Null:
        return value;
      case YAML::NodeType::Scalar:
        value.kind = ConfigValue::Kind::scalar;
        value.text = node.Scalar();
        return value;
      case YAML::NodeType::Sequence:
        value.kind = ConfigValue::Kind::list;
        for (const YAML::Node& item : node) {
          TIDEMARK_ASSIGN(ConfigValue converted, Convert(item, depth + 1));
          value.items.push_back(std::move(converted));
        }
        return value;
      case YAML::NodeType::Map:
        return ConvertMap(node, std::move(value), depth);
    }
    return value;
  }

 private:
  Result<ConfigValue> ConvertMap(const YAML::Node& node, ConfigValue value, int depth) {
    value.kind = ConfigValue::Kind::map;
    std::map<std::string, YAML::Node> seen;
    for (const auto& field : node) {
      const std::string where = At(path_, field.first.Mark());
      if (!field.first.IsScalar()) {
        return Error{ErrorCode::bad_input, where, "a key must be a word", {}};
      }
      const std::string& key = field.first.Scalar();
      if (const auto [before, is_new] = seen.try_emplace(key, field.second); !is_new) {
        const YAML::Node &first = before->second, &second = field.second;
        if (first.IsScalar() && second.IsScalar() && first.Scalar() == second.Scalar()) {
          continue;  // says the same again
        }
        return Error{ErrorCode::bad_input, where, fmt::format("{}: is given twice", key), "remove one of the two"};
      }
      TIDEMARK_ASSIGN(ConfigValue converted, Convert(field.second, depth + 1));
      converted.where = where;  // an empty value has no place of its own, and a block starts below its key
      converted.source = At(file_, field.first.Mark());
      value.fields.push_back({key, std::move(converted)});
    }
    return value;
  }

  static std::string At(const std::string& file, const YAML::Mark& mark) {
    return mark.is_null() ? file : fmt::format("{}:{}", file, mark.line + 1);
  }

  std::string path_, file_;
  int values_ = 0;
};

/// Looks at a document and keeps nothing of it.
class Onlooker : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t, const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}
};

/// Documents of a text, of which there may be more than these: 0, 1 or 2. YAML::LoadAll does not come to an end where
/// something stands behind a document that is none ("[a], b").
int DocumentsIn(const std::string& text) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  Onlooker onlooker;
  int documents = 0;
  while (documents < 2 && parser.HandleNextDocument(onlooker)) {
    ++documents;
  }
  return documents;
}

/// Whether a line, counted from 0, or the one before it, has a tab in its indentation. Between JSON's brackets it may.
bool IsIndentedWithTab(std::string_view text, int line) {
  const std::size_t start = text.find_first_not_of(" \t\r\n");
  if (start == std::string_view::npos || text[start] == '{' || text[start] == '[') {
    return false;
  }
  for (int at = 0; !text.empty() && at <= line; ++at) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view indentation = text.substr(0, std::min(text.find_first_not_of(" \t"), end));
    if (at >= line - 1 && indentation.find('\t') != std::string_view::npos) {
      return true;
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return false;
}

}  // namespace

const ConfigValue* ConfigValue::Find(std::string_view key) const {
  for (const auto& [name, value] : fields) {
    if (name == key) {
      return &value;
    }
  }
  return nullptr;
}

const ConfigValue* ConfigValue::FindPath(std::string_view path) const {
  const std::size_t dot = path.find('.');
  const ConfigValue* found = Find(path.substr(0, dot));
  return found == nullptr || dot == std::string_view::npos ? found : found->FindPath(path.substr(dot + 1));
}

Result<ConfigValue> ParseConfig(std::string_view text, const std::string& path) {
  try {
    const std::string yaml = WithoutJsonComments(text);
    const int documents = DocumentsIn(yaml);
    if (documents > 1) {
      return Error{
          ErrorCode::bad_input, path, "holds several YAML documents, or something behind one; expected one", {}};
    }
    if (documents == 0) {
      ConfigValue nothing;
      nothing.where = path;
      nothing.source = std::filesystem::path(path).filename().string();
      return nothing;
    }
    return Converter(path).Convert(YAML::Load(yaml), 0);
  } catch (const YAML::Exception& exception) {
    if (std::optional<ConfigValue> json = ParseJson(text, path)) {
      return *std::move(json);
    }
    return Error{ErrorCode::bad_input, fmt::format("{}:{}", path, exception.mark.line + 1),
                 fmt::format("is not valid YAML: {}", exception.msg),
                 IsIndentedWithTab(text, exception.mark.line)
                     ? "YAML is indented with spaces, and here a line begins with a tab"
                     : "is the file complete, and is every bracket and quote closed?"};
  }
}

std::string FolderOf(const ConfigValue& value, const std::string& folder_of_file) {
  return value.source == kCommandLine ? std::string() : folder_of_file;
}

ConfigValue MakeScalar(std::string text, std::string source) {
  ConfigValue value;
  value.kind = ConfigValue::Kind::scalar;
  value.text = std::move(text);
  value.where = source;
  value.source = std::move(source);
  return value;
}

ConfigValue MapAt(const ConfigValue& value) {
  ConfigValue map;
  map.kind = ConfigValue::Kind::map;
  map.where = value.where;
  map.source = value.source;
  return map;
}

const ConfigValue* Find(const Settings& settings, const std::string& key) {
  const auto found = settings.find(key);
  return found == settings.end() ? nullptr : &found->second;
}

Error ErrorAt(const ConfigValue& value, std::string_view key, std::string message, std::string hint) {
  Error error = BadInput(std::move(message), std::move(hint));
  error.where = key.empty() ? value.where : fmt::format("{}: {}", value.where, key);
  return error;
}

std::string Describe(const ConfigValue& value) {
  switch (value.kind) {
    case ConfigValue::Kind::null:
      return "nothing";
    case ConfigValue::Kind::scalar:
      return fmt::format("'{}'", value.text.size() > 60 ? value.text.substr(0, 57) + "..." : value.text);
    case ConfigValue::Kind::list:
      return "a list";
    case ConfigValue::Kind::map:
      return "a section";
  }
  return {};
}

}  // namespace tidemark
