// SPDX-License-Identifier: Apache-2.0
#include "cli/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/shell_word.h"

namespace tidemark {
namespace {

using Commands = std::vector<std::unique_ptr<Command>>;

constexpr std::string_view kDescription =
    "Tidemark tells how high memory rises and how long a step takes under each way of accumulating gradients,\n"
    "before any GPU is rented.";

constexpr std::string_view kFooter =
    "A JOB is a Tidemark YAML file, or the config of another tool (tidemark list formats).\n"
    "  tidemark predict job.yaml                      peak memory and step time, with the reasons\n"
    "  tidemark predict job.yaml --set layout.tp=8    the same with one value changed\n"
    "  tidemark job job.yaml                          every default, and where each value comes from\n"
    "  tidemark list strategies                       ways of accumulating gradients that are known\n"
    "  tidemark VERB --help                           options and examples of a verb\n"
    "Exit codes: 0 fine, 1 a check found something, 2 wrong input, 3 this machine cannot, 70 a fault of ours.";

/// An empty value is a variable that a script forgot to set: dropping the option would drop what it asks for.
std::string RefuseEmpty(const std::string& value) {
  return value.empty() ? "expected a value, found an empty one" : std::string();
}

std::unique_ptr<CLI::App> MakeApp(const Commands& commands) {
  auto app = std::make_unique<CLI::App>(std::string(kDescription), "tidemark");
  app->footer(std::string(kFooter));
  app->set_version_flag("--version", "tidemark " TIDEMARK_VERSION);
  app->require_subcommand(1);
  for (const auto& command : commands) {
    CLI::App* verb = app->add_subcommand(std::string(command->name()), std::string(command->summary()));
    verb->footer("Examples:\n" + std::string(command->examples()));
    command->Setup(*verb);
    for (CLI::Option* option : verb->get_options([](CLI::Option* each) { return each->get_type_size() > 0; })) {
      option->check(CLI::Validator(RefuseEmpty, ""));
    }
  }
  return app;
}

/// The sentence for a verb that does not exist: CLI11 would only call it an unexpected argument.
Error UnknownVerb(const std::string& word, const Commands& commands) {
  std::vector<std::string> names;
  for (const auto& command : commands) {
    names.emplace_back(command->name());
  }
  const std::string nearest = Nearest(word, names);
  return BadInput(fmt::format("'{}' is not a verb of tidemark; expected one of {}", word, fmt::join(names, ", ")),
                  nearest.empty() ? "tidemark --help" : fmt::format("did you mean 'tidemark {}'?", nearest));
}

/// What CLI11 found wrong, with the nearest option where one was misspelled.
Error FromParseError(const CLI::ParseError& parse_error, const CLI::App& verb, std::span<char* const> arguments) {
  Error error = BadInput(parse_error.what(), fmt::format("tidemark {} --help", verb.get_name()));
  std::replace(error.message.begin(), error.message.end(), '\n', ' ');
  if (dynamic_cast<const CLI::ExtrasError*>(&parse_error) == nullptr) {
    return error;
  }
  std::vector<std::string> options;
  for (const CLI::Option* option : verb.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      options.push_back("--" + name);
    }
  }
  for (const std::string argument : arguments) {
    const std::string name = argument.substr(0, argument.find('='));
    if (!name.starts_with("--") || std::find(options.begin(), options.end(), name) != options.end()) {
      continue;
    }
    error.message = fmt::format("'{}' is not an option of tidemark {}", name, verb.get_name());
    if (const std::string nearest = Nearest(name, options); !nearest.empty()) {
      error.hint = fmt::format("did you mean {}?", nearest);
    }
    return error;
  }
  std::string settings;
  for (auto argument = arguments.begin(); argument != arguments.end(); ++argument) {
    const bool of_an_option = argument != arguments.begin() && std::string_view(*(argument - 1)).starts_with("--");
    if (IsSetting(*argument) && !of_an_option) {
      settings += fmt::format(" --set {}", ShellWord(*argument));
    }
  }
  if (!settings.empty() && std::ranges::find(options, "--set") != options.end()) {
    error.hint = fmt::format("did you mean{}?", settings);
  }
  return error;
}

/// --help and --version arrive as exceptions, too; they are the result then.
Result<int> FinishHelp(const CLI::App& app, const CLI::ParseError& request) {
  std::ostringstream out;
  std::ostringstream complaint;
  app.exit(request, out, complaint);
  TIDEMARK_TRY(WriteOut(out.str()));
  return 0;
}

}  // namespace

Result<int> RunCommandLine(std::span<char* const> arguments) {
  const Commands commands = MakeCommands();
  const std::unique_ptr<CLI::App> app = MakeApp(commands);
  if (arguments.empty()) {
    return BadInput("a verb is expected", "tidemark --help lists them; tidemark predict JOB is where to start");
  }
  const std::string first = arguments.front();
  const auto chosen =
      std::find_if(commands.begin(), commands.end(), [&](const auto& command) { return command->name() == first; });
  if (chosen == commands.end() && !first.starts_with("-")) {
    return UnknownVerb(first, commands);
  }
  try {
    app->parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));  // CLI11 takes them last first
  } catch (const CLI::Success& request) {
    return FinishHelp(*app, request);
  } catch (const CLI::ParseError& parse_error) {
    const CLI::App& parsed = chosen == commands.end() ? *app : *app->get_subcommand(first);
    return FromParseError(parse_error, parsed, arguments);
  }
  if (chosen == commands.end()) {
    return BadInput("a verb is expected before its options", "tidemark VERB --help");
  }
  return (*chosen)->Run();
}

}  // namespace tidemark
