// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reports/render/document.h"
#include "reports/summarise/trace_report.h"

namespace tidemark {

// What is different between several traces of a report.

/// All categories beside each other, at each trace's own peak.
Section CategoriesSection(const TraceReport& report);

/// Largest first; what does not fit on the page and what is alike is added up, so that the rows sum to the last one.
Section DifferenceSection(const TraceReport& report, const PeakDifference& difference);

/// The keys in which the jobs differ.
Section JobsSection(const TraceReport& report);

}  // namespace tidemark
