// SPDX-License-Identifier: Apache-2.0
#include "models/configs/arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <tao/pegtl/ascii.hpp>
#include <tao/pegtl/memory_input.hpp>
#include <tao/pegtl/must_if.hpp>
#include <tao/pegtl/nothing.hpp>
#include <tao/pegtl/parse.hpp>
#include <tao/pegtl/rules.hpp>
#include <utility>
#include <vector>

namespace tidemark {
namespace {

constexpr std::size_t kMostWords = 100'000;  ///< far more than a command line has

/// Words of a shell with which a command ends.
constexpr std::string_view kEnds[] = {"|", "||", "&&", "&", ";", ">", ">>", "2>", "2>&1", "&>", "<"};

struct Word {
  std::string text;
  std::size_t line = 0;
};

/// What the grammar fills.
struct Words {
  std::vector<Word> all;
  std::string open;  ///< the word that is being read
};

bool IsOption(std::string_view word) {
  return word.size() > 2 && word.starts_with("--") && std::isalpha(static_cast<unsigned char>(word[2])) != 0;
}

namespace grammar {

using namespace tao::pegtl;  // NOLINT(google-build-using-namespace): its rules are the words of a grammar

struct Comment : seq<one<'#'>, until<at<eolf>>> {};
struct Continued : seq<one<'\\'>, eol> {};
struct Gap : plus<sor<space, Continued>> {};

// The characters that a word keeps of each spelling.
struct Kept : any {};
struct Escaped : seq<one<'\\'>, Kept> {};
struct InSingleQuotes : not_one<'\''> {};
struct InDoubleQuotes : not_one<'"'> {};
struct Bare : not_one<' ', '\t', '\n', '\v', '\f', '\r', '\'', '"', '\\'> {};

struct SingleQuoteEnds : one<'\''> {};
struct DoubleQuoteEnds : one<'"'> {};
struct EscapedInQuotes : seq<one<'\\'>, at<one<'"', '\\', '$', '`'>>, Kept> {};
struct SingleQuoted : seq<one<'\''>, star<InSingleQuotes>, SingleQuoteEnds> {};
struct DoubleQuoted : seq<one<'"'>, star<sor<Continued, EscapedInQuotes, InDoubleQuotes>>, DoubleQuoteEnds> {};
struct Word : plus<sor<SingleQuoted, DoubleQuoted, Continued, Escaped, Bare>> {};
struct End : eof {};
struct Text : seq<star<sor<Gap, Comment, Word>>, End> {};

struct Faults {
  template <class>
  static constexpr const char* message = nullptr;
};
template <>
constexpr const char* Faults::message<SingleQuoteEnds> = "a quote ' is not closed";
template <>
constexpr const char* Faults::message<DoubleQuoteEnds> = "a quote \" is not closed";
template <>
constexpr const char* Faults::message<End> = "the last line goes on, and nothing follows it";
template <class Rule>
using Control = must_if<Faults>::control<Rule>;

template <class Rule>
struct Action : nothing<Rule> {};
struct Keep {
  static void apply(const auto& in, Words& words) { words.open += in.string_view(); }
};
template <>
struct Action<Kept> : Keep {};
template <>
struct Action<InSingleQuotes> : Keep {};
template <>
struct Action<InDoubleQuotes> : Keep {};
template <>
struct Action<Bare> : Keep {};
template <>
struct Action<Word> {
  static void apply(const auto& in, Words& words) {
    if (words.all.size() == kMostWords) {
      throw parse_error("holds more words than a command line can", in);
    }
    words.all.push_back({std::exchange(words.open, {}), in.position().line});
  }
};

}  // namespace grammar

/// Options, each with what follows it.
class OptionReader {
 public:
  explicit OptionReader(const std::string& path) : path_(path), file_(std::filesystem::path(path).filename().string()) {
    root_.kind = ConfigValue::Kind::map;
    root_.where = path;
    root_.source = file_;
    root_.fields.push_back({"", {}});  // the words before the first option
  }

  void Add(const Word& word) {
    if (!IsOption(word.text)) {
      Follow(word);
      return;
    }
    const std::size_t equals = word.text.find('=');
    const std::string name = word.text.substr(2, equals == std::string::npos ? equals : equals - 2);
    const auto [place, is_new] = places_.try_emplace(name, root_.fields.size());
    if (is_new) {
      root_.fields.push_back({name, {}});
    }
    last_ = place->second;
    root_.fields[last_].value = At("true", word.line);
    alone_ = true;
    if (equals != std::string::npos) {
      Follow({word.text.substr(equals + 1), word.line});
    }
  }

  ConfigValue Finish() && { return std::move(root_); }

 private:
  ConfigValue At(std::string text, std::size_t line) const {
    ConfigValue value = MakeScalar(std::move(text), fmt::format("{}:{}", file_, line));
    value.where = fmt::format("{}:{}", path_, line);
    return value;
  }

  /// The last option's value, or one more of them.
  void Follow(const Word& word) {
    ConfigValue& value = root_.fields[last_].value;
    if (std::exchange(alone_, false)) {
      value = At(word.text, word.line);
      return;
    }
    if (value.kind == ConfigValue::Kind::scalar) {
      ConfigValue first = value;
      value.kind = ConfigValue::Kind::list;
      value.text.clear();
      value.items.push_back(std::move(first));
    }
    value.items.push_back(At(word.text, word.line));
  }

  std::string path_, file_;
  ConfigValue root_;
  std::map<std::string, std::size_t> places_;  ///< of fields by name
  std::size_t last_ = 0;
  bool alone_ = true;  ///< no value has followed the last option
};

}  // namespace

bool HasOptions(std::string_view text) {
  for (std::size_t at = text.find("--"); at != std::string_view::npos; at = text.find("--", at + 2)) {
    const bool begins = at == 0 || std::isspace(static_cast<unsigned char>(text[at - 1])) != 0;
    if (begins && IsOption(text.substr(at))) {
      return true;
    }
  }
  return false;
}

Result<ConfigValue> ParseArguments(std::string_view text, const std::string& path) {
  if (text.starts_with("#!")) {
    return Error{
        ErrorCode::bad_input, path + ":1", "is a script, and what it runs is for its shell to say",
        "put echo before the command that trains (echo torchrun ...), run the script, and pass what it prints"};
  }
  Words words;
  try {
    tao::pegtl::memory_input in(text, path);
    tao::pegtl::parse<grammar::Text, grammar::Action, grammar::Control>(in, words);
  } catch (const tao::pegtl::parse_error& error) {
    return Error{ErrorCode::bad_input, fmt::format("{}:{}", path, error.positions().front().line),
                 fmt::format("is no command line: {}", error.message()), "is every quote closed?"};
  }
  OptionReader reader(path);
  bool ended = false;
  for (const Word& word : words.all) {
    ended = ended || std::ranges::find(kEnds, word.text) != std::end(kEnds);
    if (!ended) {
      reader.Add(word);
    } else if (IsOption(word.text)) {
      return Error{ErrorCode::bad_input, fmt::format("{}:{}", path, word.line), "holds more than one command",
                   "leave the one that trains"};
    }
  }
  return std::move(reader).Finish();
}

}  // namespace tidemark
