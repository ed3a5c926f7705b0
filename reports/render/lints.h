// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "reports/render/document.h"
#include "reports/summarise/prediction.h"

namespace tidemark {

/// `lints[]` of every schema.
nlohmann::ordered_json LintsJson(const std::vector<Lint>& lints);

/// "error wrong-gradient: ..." with its hint.
Remark LintRemark(const Lint& lint);

/// What a headline has to say beside the size: "GRADIENTS ARE WRONG: ...; contrastive-accumulation: ...". Empty where
/// no lint is an error.
std::string ErrorSentence(const std::vector<Lint>& lints);

}  // namespace tidemark
