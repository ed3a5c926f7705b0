// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/embedded_file.h"
#include "base/lint.h"

namespace tidemark {

/// One way in which gradient accumulation goes wrong, or comes to something else than its user thinks.
struct KnownFinding {
  std::string id;
  /// Where it shows:
  ///   lint       lints[].id of predict and audit, where `example` is such a job
  ///   cause      lints[].cause of a lint "wrong-gradient"
  ///   hazard     hazards[].kind of audit
  ///   program    a rule of Verify over step programs (sim/program/verify.h)
  ///   refusal    the job is refused in the real system's words
  ///   elsewhere  real systems only: no job says it; the compatibility matrix and this list do
  std::string kind;
  std::string title;
  std::string paragraph;  ///< what happens and why, for who has never met it
  std::string effect;     ///< what it comes to, as a formula where there is one
  std::string hint;       ///< what to do
  std::string link;       ///< a public page that tells of it
  bool about_memory;      ///< whether its hint saves memory: `about: memory`
  bool about_numbers;     ///< whether it makes gradients differ from those of one big batch: `about: numbers`
  std::string example;    ///< arguments of tidemark, from the repository's root, that show it; empty: nothing does
};

/// The files of models/findings, generated into the program.
std::span<const EmbeddedFile> FindingFiles();

/// All of them, in the order of findings.yaml.
const std::vector<KnownFinding>& KnownFindings();

/// The finding of this id; null where there is none (a trace may come from another version).
const KnownFinding* FindKnownFinding(std::string_view id);

/// Whether what this lint tells makes gradients differ from those of one big batch.
bool IsAboutNumbers(const Lint& lint);

}  // namespace tidemark
