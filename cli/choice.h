// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <utility>
#include <vector>

namespace tidemark {

/// An option that takes one of a few words, each standing for a value. CLI11's own transformer prints the numbers
/// behind the words in its messages, and cuts them off where the enum is a single byte.
/// `Target` is a Value or an optional one.
template <class Value, class Target>
void AddChoice(CLI::App& app, const std::string& name, Target& value,
               const std::vector<std::pair<std::string, Value>>& choices, const std::string& help,
               const std::string& type_name = "NAME") {
  std::vector<std::string> words;
  for (const auto& [word, meaning] : choices) {
    words.push_back(word);
  }
  app.add_option_function<std::string>(
         name,
         [&value, choices](const std::string& chosen) {
           for (const auto& [word, meaning] : choices) {
             if (word == chosen) {
               value = meaning;
             }
           }
         },
         help)
      ->check(CLI::IsMember(words).description(""))
      ->type_name(type_name);
}

}  // namespace tidemark
