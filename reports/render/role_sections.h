// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "reports/render/document.h"
#include "reports/summarise/prediction.h"

namespace tidemark {

// Sections and phrases that the report of a prediction and that of traces share.

/// `part` of `whole`, 0 where there is no whole.
double Share(std::int64_t part, std::int64_t whole);
std::string Percent(double share);
/// "1,234 bytes"
std::string AllDigits(Bytes bytes);
/// "8.08 GiB to 9.10 GiB"
std::string BandText(const Band& band);

/// What is added to the tensors until it is the device's memory; the parts sum to it exactly.
Section BudgetSection(const RoleReport& role);
Section CategorySection(const RoleReport& role);
Section LiveSection(const RoleReport& role);
Section PhasesSection(const RoleReport& role);

/// Appends remarks on what the prediction that a trace is of assumes and does not model; none for a measurement.
/// `before`: in front of their labels.
void AddAssumptions(Section& section, const std::string& before, const Trace& trace);

}  // namespace tidemark
