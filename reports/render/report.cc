// SPDX-License-Identifier: Apache-2.0
#include "reports/render/report.h"

#include <nlohmann/json.hpp>

#include "reports/render/report_json.h"

namespace tidemark {

template <class Summary>
requires(!std::same_as<Summary, Report>) Report::Report(const Summary& summary)
    : document_([&summary] { return MakeDocument(summary); }),
      json_([&summary] {
        return MakeJson(summary).dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
      }),
      page_([&summary] { return MakePage(summary); }) {}

template Report::Report(const PredictionReport&);
template Report::Report(const TraceReport&);
template Report::Report(const AuditReport&);
template Report::Report(const Explanation&);
template Report::Report(const ComparisonReport&);
template Report::Report(const SweepReport&);
template Report::Report(const Advice&);
template Report::Report(const Solution&);
template Report::Report(const ReplayReport&);
template Report::Report(const CheckReport&);

}  // namespace tidemark
