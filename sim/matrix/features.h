// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/embedded_file.h"

namespace tidemark {

/// What a strategy makes of a feature, from bad to good.
enum class Verdict : std::uint8_t {
  wrong,           ///< it runs, and another gradient than the mean reaches the optimizer
  refused,         ///< the real system does not run it
  does_not_defer,  ///< it runs, and reduces gradients more than once a step
  changes_memory,  ///< it runs as meant, with another peak
  no_such_setting,
  not_modelled,  ///< the real system may have it, we do not
  works,
};

/// "does-not-defer"
std::string_view Name(Verdict verdict);

/// What no job of ours can show, from public sources: what a real system makes of a feature.
struct Fact {
  Verdict verdict = Verdict::wrong;
  std::string finding;  ///< an id of models/findings
  std::vector<std::string> strategies;
};

/// A column of the compatibility matrix. sim/matrix/features.yaml says what each field is.
struct Feature {
  std::string name, group, title;
  std::vector<std::vector<std::string>> ways;  ///< of "key=value"
  std::vector<std::string> against, needs;
  std::string paragraph, hint, link;
  std::vector<Fact> facts;
};

struct MatrixData {
  std::string about;              ///< how cells come about
  std::vector<std::string> jobs;  ///< Tidemark YAML
  std::vector<Feature> features;
};

/// The files of sim/matrix, generated into the program.
std::span<const EmbeddedFile> MatrixFiles();

/// What they say.
const MatrixData& ReadMatrixData();

}  // namespace tidemark
