// SPDX-License-Identifier: Apache-2.0
#include "cli/list_matrix.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "sim/matrix/matrix.h"
#include "sim/strategies/strategy.h"

namespace tidemark {
namespace {

struct Mark {
  Verdict verdict;
  const char* mark;
  const char* meaning;
};

constexpr Mark kMarks[] = {
    {Verdict::works, "+", "works, with the same peak"},
    {Verdict::changes_memory, "m", "works, and changes the peak"},
    {Verdict::does_not_defer, "n", "works, and reduces gradients more than once a step"},
    {Verdict::refused, "R", "refused, as the real system does"},
    {Verdict::wrong, "W", "runs, and gradients are wrong"},
    {Verdict::no_such_setting, "-", "the system has no such setting"},
    {Verdict::not_modelled, "?", "not modelled here"},
};

const char* MarkOf(Verdict verdict) {
  return std::find_if(std::begin(kMarks), std::end(kMarks), [&](const Mark& mark) { return mark.verdict == verdict; })
      ->mark;
}

/// The letter of a feature's column: a to z, then A to Z.
char Letter(std::size_t column) {
  return static_cast<char>(column < 26 ? 'a' + static_cast<char>(column) : 'A' + static_cast<char>(column - 26));
}

/// Cells of one feature about which the same is to be said.
struct Note {
  const Cell* cell = nullptr;
  std::vector<std::string> strategies;  ///< each with its effect, where that differs
};

bool AreAlike(const Cell& a, const Cell& b) { return a.verdict == b.verdict && a.id == b.id && a.message == b.message; }

std::vector<Note> NotesOf(const std::vector<MatrixRow>& rows, std::size_t feature) {
  std::vector<Note> notes;
  for (const MatrixRow& row : rows) {
    const Cell& cell = row.cells[feature];
    if (cell.verdict == Verdict::works || cell.verdict == Verdict::no_such_setting) {
      continue;
    }
    auto note = std::find_if(notes.begin(), notes.end(), [&](const Note& n) { return AreAlike(*n.cell, cell); });
    if (note == notes.end()) {
      note = notes.insert(note, Note{&cell, {}});
    }
    const bool computed = cell.verdict == Verdict::changes_memory || cell.verdict == Verdict::does_not_defer;
    note->strategies.push_back(computed ? fmt::format("{} ({})", row.strategy, cell.effect) : row.strategy);
  }
  std::stable_sort(notes.begin(), notes.end(),
                   [](const Note& a, const Note& b) { return a.cell->verdict < b.cell->verdict; });
  return notes;
}

std::string AsJson(const std::vector<MatrixRow>& rows) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const MatrixRow& row : rows) {
    nlohmann::ordered_json cells = nlohmann::ordered_json::array();
    for (const Cell& cell : row.cells) {
      cells.push_back({{"feature", cell.feature},
                       {"verdict", Name(cell.verdict)},
                       {"id", cell.id},
                       {"message", cell.message},
                       {"paragraph", cell.paragraph},
                       {"effect", cell.effect},
                       {"hint", cell.hint},
                       {"link", cell.link},
                       {"set", cell.set}});
    }
    list.push_back({{"name", row.strategy}, {"summary", row.summary}, {"cells", cells}});
  }
  return list.dump(2) + "\n";
}

/// Words of `text` in lines of at most `width` columns behind `indent`.
std::string Wrapped(const std::string& text, std::size_t indent, std::size_t width) {
  std::string out, line;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    if (!line.empty() && indent + line.size() + 1 + word.size() > width) {
      out += std::string(indent, ' ') + line + "\n";
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
    at = end + 1;
  }
  return line.empty() ? out : out + std::string(indent, ' ') + line + "\n";
}

constexpr std::size_t kColumns = 100;
constexpr std::size_t kIndent = 3;

/// The features' letters, or one row's marks, with a space between groups.
template <class Text>
std::string InGroups(const std::vector<Feature>& features, Text text) {
  std::string line;
  for (std::size_t i = 0; i < features.size(); ++i) {
    line += i > 0 && features[i].group != features[i - 1].group ? " " : "";
    line += text(i);
  }
  return line;
}

std::string AsText(const std::vector<MatrixRow>& rows) {
  const std::vector<Feature>& features = ReadMatrixData().features;
  std::size_t width = 0;
  for (const MatrixRow& row : rows) {
    width = std::max(width, row.strategy.size());
  }
  std::string text = fmt::format("{:<{}}  {}\n", "", width, InGroups(features, Letter));
  for (const MatrixRow& row : rows) {
    text += fmt::format("{:<{}}  {}\n", row.strategy, width,
                        InGroups(features, [&](std::size_t i) { return MarkOf(row.cells[i].verdict); }));
  }
  text += "\n" + Wrapped(ReadMatrixData().about, 0, kColumns) + "\n";
  for (const Mark& mark : kMarks) {
    text += fmt::format("  {}  {}\n", mark.mark, mark.meaning);
  }
  for (std::size_t i = 0; i < features.size(); ++i) {
    text += fmt::format("\n{}  {}", Letter(i),
                        Wrapped(features[i].name + ": " + features[i].title, kIndent, kColumns).substr(kIndent));
    for (const Note& note : NotesOf(rows, i)) {
      const std::string& what = note.cell->message;
      text += Wrapped(fmt::format("{} {}: {}{}", MarkOf(note.cell->verdict), Name(note.cell->verdict),
                                  what.empty() ? "" : what + ": ", fmt::join(note.strategies, ", ")),
                      kIndent, kColumns);
    }
  }
  return text;
}

std::string EscapedCell(std::string text) {
  for (std::size_t at = text.find('|'); at != std::string::npos; at = text.find('|', at + 2)) {
    text.insert(at, 1, '\\');
  }
  return text;
}

std::string MarkdownTable(const std::vector<MatrixRow>& rows, const std::vector<Feature>& features) {
  std::string text = "| strategy |", rule = "|---|";
  for (std::size_t i = 0; i < features.size(); ++i) {
    text += fmt::format(" [{}](#{}) |", Letter(i), features[i].name);
    rule += ":-:|";
  }
  text += "\n" + rule + "\n";
  for (const MatrixRow& row : rows) {
    text += fmt::format("| `{}` |", row.strategy);
    for (const Cell& cell : row.cells) {
      text += fmt::format(" {} |", MarkOf(cell.verdict));
    }
    text += "\n";
  }
  return text;
}

std::string MarkdownNote(const Note& note) {
  const Cell& cell = *note.cell;
  std::string text = fmt::format("- **{}**: {}.", Name(cell.verdict), fmt::join(note.strategies, ", "));
  text += cell.message.empty() ? "" : fmt::format(" {}.", cell.message);
  if (cell.id != cell.feature) {
    text += fmt::format(" {} (`{}`)", cell.paragraph, cell.id);
  }
  text += cell.hint.empty() ? "" : fmt::format(" *Hint: {}*", cell.hint);
  return text + (cell.id != cell.feature ? fmt::format(" [More]({})\n", cell.link) : "\n");
}

std::string AsMarkdown(const std::vector<MatrixRow>& rows) {
  const std::vector<Feature>& features = ReadMatrixData().features;
  std::string text = fmt::format("# What works with what\n\n{}\n\n", ReadMatrixData().about);
  text += "`tidemark list strategies --matrix` prints this page; columns are explained below it.\n\n";
  text += MarkdownTable(rows, features) + "\n";
  for (const Mark& mark : kMarks) {
    text +=
        fmt::format("- {} {}\n", mark.mark[0] == '+' || mark.mark[0] == '-' ? std::string("\\") + mark.mark : mark.mark,
                    mark.meaning);
  }
  for (std::size_t i = 0; i < features.size(); ++i) {
    const Feature& feature = features[i];
    text += fmt::format("\n### {}\n\n{}: {}. {} [More]({})\n\n", feature.name, Letter(i), EscapedCell(feature.title),
                        feature.paragraph, feature.link);
    for (const Note& note : NotesOf(rows, i)) {
      text += MarkdownNote(note);
    }
  }
  return text;
}

}  // namespace

std::string ListMatrix(OutputFormat format) {
  const std::vector<StrategyDefaults> strategies = KnownStrategies();
  const std::vector<MatrixRow> rows = CompatibilityMatrix(strategies);
  return format == OutputFormat::json       ? AsJson(rows)
         : format == OutputFormat::markdown ? AsMarkdown(rows)
                                            : AsText(rows);
}

}  // namespace tidemark
