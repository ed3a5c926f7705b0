// SPDX-License-Identifier: Apache-2.0
#include "models/configs/layer_pattern.h"

#include <charconv>
#include <string>
#include <system_error>
#include <tao/pegtl/ascii.hpp>
#include <tao/pegtl/memory_input.hpp>
#include <tao/pegtl/nothing.hpp>
#include <tao/pegtl/parse.hpp>
#include <tao/pegtl/rules.hpp>
#include <utility>

#include "models/network/network.h"

namespace tidemark {
namespace {

/// Lists that are put together, the last one on top.
class PatternBuilder {
 public:
  std::vector<bool>& top() { return lists_.back(); }
  void Begin() { lists_.emplace_back(); }
  bool Open() { return ++depth_ <= kDeepestPattern; }
  void Close() { --depth_; }

  bool Repeat(std::string_view digits) {
    std::int64_t times = 0;
    const auto [end, fault] = std::from_chars(digits.data(), digits.data() + digits.size(), times);
    const auto size = static_cast<std::int64_t>(top().size());
    if (fault != std::errc() || times > Decoder::kMostLayers || size * times > Decoder::kMostLayers) {
      return false;
    }
    const std::vector<bool> once = std::exchange(top(), {});
    for (std::int64_t i = 0; i < times; ++i) {
      top().insert(top().end(), once.begin(), once.end());
    }
    return true;
  }

  void Join() {
    const std::vector<bool> right = std::move(top());
    lists_.pop_back();
    top().insert(top().end(), right.begin(), right.end());
  }

 private:
  std::vector<std::vector<bool>> lists_;
  int depth_ = 0;  ///< of parentheses
};

namespace pattern {

using namespace tao::pegtl;  // NOLINT(google-build-using-namespace): its rules are the words of a grammar

template <class Text>
struct Token : seq<Text, star<blank>> {};

struct Sum;
struct Item : sor<one<'0'>, one<'1'>> {};
struct Begin : one<'['> {};
struct List : seq<Token<Begin>, opt<tao::pegtl::list<Token<Item>, Token<one<','>>>>, Token<one<']'>>> {};
struct Times : plus<digit> {};
struct Open : one<'('> {};
struct Close : one<')'> {};
struct Product : seq<sor<List, seq<Token<Open>, Sum, Token<Close>>>, star<Token<one<'*'>>, Token<Times>>> {};
struct Joined : seq<Token<one<'+'>>, Product> {};
struct Sum : seq<Product, star<Joined>> {};
struct Text : seq<star<blank>, Sum, eof> {};

template <class Rule>
struct Action : nothing<Rule> {};
template <>
struct Action<Begin> {
  static void apply0(PatternBuilder& builder) { builder.Begin(); }
};
template <>
struct Action<Open> {
  static bool apply0(PatternBuilder& builder) { return builder.Open(); }
};
template <>
struct Action<Close> {
  static void apply0(PatternBuilder& builder) { builder.Close(); }
};
template <>
struct Action<Item> {
  static void apply(const auto& in, PatternBuilder& builder) { builder.top().push_back(in.string_view() == "1"); }
};
template <>
struct Action<Times> {
  static bool apply(const auto& in, PatternBuilder& builder) { return builder.Repeat(in.string_view()); }
};
template <>
struct Action<Joined> {
  static void apply0(PatternBuilder& builder) { builder.Join(); }
};

}  // namespace pattern

}  // namespace

std::optional<std::vector<bool>> ReadLayerPattern(std::string_view text, std::int64_t layers) {
  std::int64_t every = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), every);
  if (fault == std::errc() && end == text.data() + text.size() && every > 0) {
    std::vector<bool> all;
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      all.push_back(layer % every == 0);
    }
    return all;
  }
  PatternBuilder builder;
  tao::pegtl::memory_input input(text.data(), text.data() + text.size(), "");
  if (!tao::pegtl::parse<pattern::Text, pattern::Action>(input, builder)) {
    return std::nullopt;
  }
  return builder.top();
}

std::string PatternText(const ConfigValue& value) {
  std::string text = value.text;
  for (const ConfigValue& word : value.items) {
    text += (text.empty() ? "" : " ") + word.text;
  }
  return text;
}

}  // namespace tidemark
