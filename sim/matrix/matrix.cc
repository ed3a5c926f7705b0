// SPDX-License-Identifier: Apache-2.0
#include "sim/matrix/matrix.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/text.h"
#include "models/findings/findings.h"
#include "models/job/read.h"
#include "sim/engine/closed_form.h"
#include "sim/lower/lower.h"
#include "sim/predict/communication.h"
#include "sim/predict/lints.h"

namespace tidemark {
namespace {

/// Full bytes of gradients that are reduced in a step, by kind of collective, over all roles.
using Reduced = std::map<std::string, Bytes>;

struct Measure {
  Bytes peak;
  Reduced reduced;
};

std::optional<Measure> MeasureOf(const Job& job) {
  const Result<StepProgram> step = Lower(job, StepKind::steady);
  if (!step) {
    return std::nullopt;
  }
  Measure measure;
  for (const Program& role : step->roles) {
    measure.peak = std::max(measure.peak, FoldMemory(role).allocated);
    for (const CommunicationRow& row : CountCommunication(role)) {
      // Counts of used parameters and of tokens are whole numbers, and no gradients.
      const bool whole_numbers = row.dtype == DType::int32 || row.dtype == DType::int64;
      const bool gradients = !whole_numbers && (row.group == "dp" || row.group == "replicas" || row.group == "edp");
      if (gradients && (row.kind == "all_reduce" || row.kind == "reduce_scatter" || row.kind == "reduce")) {
        measure.reduced[row.kind] += row.payload;
      }
    }
  }
  return measure;
}

/// How Strategy::Accept refuses what a strategy would not look at.
constexpr std::string_view kNoSuchSetting = "has no such setting";

/// The same job with one microbatch.
Job WithOneMicrobatch(Job job) {
  job.accumulation_steps = 1;
  job.pipeline_microbatches = 0;
  job.last_window = {};
  job.axes.chunks = 0;
  return job;
}

double Ratio(Bytes a, Bytes b) { return static_cast<double>(a.count()) / static_cast<double>(b.count()); }

/// Kinds of collectives by which the job reduces more than it would with one microbatch, and how much more.
std::map<std::string, double> Repeated(const Job& job, const Measure& measure) {
  std::map<std::string, double> repeated;
  const std::optional<Measure> once = MeasureOf(WithOneMicrobatch(job));
  if (!once) {
    return repeated;
  }
  for (const auto& [kind, bytes] : measure.reduced) {
    const auto found = once->reduced.find(kind);
    if (found != once->reduced.end() && bytes > found->second) {
      repeated[kind] = Ratio(bytes, found->second);
    }
  }
  return repeated;
}

/// Everything about a job that cells are judged by.
struct Judged {
  Job job;
  Measure measure;
  std::map<std::string, double> repeated;
  std::vector<Lint> lints;
};

std::string PeakText(Bytes with, Bytes without) {
  const std::int64_t change = with.count() - without.count();
  return fmt::format("peak {}{} bytes ({:+.1f} %)", change < 0 ? "-" : "+", Grouped(std::abs(change)),
                     100 * (Ratio(with, without) - 1));
}

std::string RepeatedText(const std::map<std::string, double>& repeated) {
  std::vector<std::string> parts;
  for (const auto& [kind, times] : repeated) {
    parts.push_back(fmt::format("{} x {:.3g}", kind, times));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

/// One strategy on its small job.
class Tried {
 public:
  Tried(const StrategyDefaults& strategy, std::span<const StrategyDefaults> strategies)
      : strategy_(strategy), strategies_(strategies) {
    for (const std::string& text : ReadMatrixData().jobs) {
      text_ = text;
      if (Read({}).ok()) {
        return;
      }
    }
    TIDEMARK_CHECK(false && "a strategy accepts none of the small jobs");
  }

  Cell Judge(const Feature& feature) {
    Cell cell;
    cell.feature = feature.name;
    if (feature.ways.empty()) {
      cell.verdict = Verdict::not_modelled;
    } else {
      Compute(feature, cell);
    }
    for (const Fact& fact : feature.facts) {
      if (std::find(fact.strategies.begin(), fact.strategies.end(), strategy_.name) != fact.strategies.end()) {
        if (cell.verdict != fact.verdict) {
          cell.message.clear();  // of another verdict
          cell.hint.clear();
        }
        cell.verdict = fact.verdict;
        cell.id = fact.finding;
      }
    }
    Explain(feature, cell);
    return cell;
  }

 private:
  Result<Job> Read(const std::vector<std::string>& set) const {
    JobChanges changes{set, "tidemark"};
    changes.set.insert(changes.set.begin(), "strategy=" + strategy_.name);
    return ParseJob(text_, "matrix", changes, strategies_);
  }

  /// The job with these keys, looked at once; nullptr where it is refused.
  const Judged* Look(const std::vector<std::string>& set) {
    const auto [found, fresh] = judged_.try_emplace(set);
    if (fresh) {
      const Result<Job> job = Read(set);
      if (const std::optional<Measure> measure = job ? MeasureOf(*job) : std::nullopt) {
        found->second = Judged{*job, *measure, Repeated(*job, *measure), LintJob(*job)};
      }
    }
    return found->second ? &*found->second : nullptr;
  }

  void Compute(const Feature& feature, Cell& cell) {
    if (!feature.needs.empty() && Look(feature.needs) == nullptr) {
      return Refuse(feature.needs, cell);
    }
    for (const std::vector<std::string>& way : feature.ways) {
      if (const Judged* with = Look(way)) {
        cell.set = way;
        const Judged* without = Look(feature.against);
        Compare(*with, without != nullptr ? *without : *Look({}), cell);
        return;
      }
    }
    Refuse(feature.ways.front(), cell);
  }

  /// By the words of the refusal; of several keys the first is the feature's own.
  void Refuse(const std::vector<std::string>& way, Cell& cell) const {
    const auto says = [](const Error& error, std::string_view words) {
      return error.message.find(words) != std::string::npos;
    };
    const Result<Job> own = Read({way.front()});
    const Error error = !own && says(own.error(), kNoSuchSetting) ? own.error() : Read(way).error();
    cell.set = way;
    cell.message = error.message;
    cell.hint = error.hint;
    cell.verdict = says(error, kNoSuchSetting)                                               ? Verdict::no_such_setting
                   : says(error, "modelled") || says(error, "not supported by this version") ? Verdict::not_modelled
                                                                                             : Verdict::refused;
  }

  static void Compare(const Judged& with, const Judged& without, Cell& cell) {
    const auto error =
        std::find_if(with.lints.begin(), with.lints.end(), [](const Lint& lint) { return lint.severity == "error"; });
    if (with.measure.peak != without.measure.peak) {
      cell.effect = PeakText(with.measure.peak, without.measure.peak);
      cell.verdict = Verdict::changes_memory;
    }
    if (!with.repeated.empty() && without.repeated.empty()) {
      cell.effect = RepeatedText(with.repeated) + (cell.effect.empty() ? "" : "; " + cell.effect);
      cell.verdict = Verdict::does_not_defer;
      cell.id = "sync-every-microbatch";
    }
    if (error != with.lints.end()) {
      cell.verdict = Verdict::wrong;
      cell.id = error->explained_by();
      cell.message = error->message;
      cell.hint = error->hint;
    }
  }

  /// What stands beside the verdict: of the finding, else of the feature.
  static void Explain(const Feature& feature, Cell& cell) {
    if (cell.verdict == Verdict::works) {
      return;
    }
    if (const KnownFinding* finding = FindKnownFinding(cell.id)) {
      cell.paragraph = finding->paragraph;
      cell.link = finding->link;
      cell.effect = cell.effect.empty() ? finding->effect : cell.effect;
      cell.hint = cell.hint.empty() ? finding->hint : cell.hint;
      return;
    }
    TIDEMARK_CHECK(cell.id.empty());
    cell.id = feature.name;
    cell.paragraph = feature.paragraph;
    cell.link = feature.link;
    cell.hint = cell.hint.empty() ? feature.hint : cell.hint;
  }

  const StrategyDefaults& strategy_;
  std::span<const StrategyDefaults> strategies_;
  std::string text_;
  std::map<std::vector<std::string>, std::optional<Judged>> judged_;
};

}  // namespace

std::vector<MatrixRow> CompatibilityMatrix(std::span<const StrategyDefaults> strategies) {
  std::vector<MatrixRow> rows;
  for (const StrategyDefaults& strategy : strategies) {
    Tried tried(strategy, strategies);
    MatrixRow row{strategy.name, strategy.summary, {}};
    for (const Feature& feature : ReadMatrixData().features) {
      row.cells.push_back(tried.Judge(feature));
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace tidemark
