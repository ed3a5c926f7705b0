// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <functional>
#include <string>

#include "reports/render/document.h"
#include "reports/render/pages.h"

namespace tidemark {

/// Any report, in the forms that renderers put into words, each made when it is asked for.
class Report {
 public:
  /// Of a summary (PredictionReport, SweepReport, ...), which must outlive it. A new kind needs a MakeDocument, a
  /// MakeJson, where a browser shows more than the document a MakePage, and its line at the end of report.cc.
  template <class Summary>
  requires(!std::same_as<Summary, Report>) Report(const Summary& summary);  // a report is its summary, in other words

  Document document() const { return document_(); }
  /// Names that are not UTF-8 come out with replacement characters rather than as an error.
  std::string json() const { return json_(); }
  Page page() const { return page_(); }

 private:
  std::function<Document()> document_;
  std::function<std::string()> json_;
  std::function<Page()> page_;
};

}  // namespace tidemark
