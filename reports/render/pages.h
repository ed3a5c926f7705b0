// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "reports/render/document.h"

namespace tidemark {

/// A report as a browser shows it.
struct Page {
  Document document;            ///< all that stands around the pictures
  std::string_view stage = {};  ///< elements that the page's scripts fill; empty: no pictures
  std::string data = {};        ///< elements that the scripts read
  std::string_view kind = {};   ///< class of <body>
};

/// Of most reports the document is all.
template <class Summary>
Page MakePage(const Summary& summary) {
  return {MakeDocument(summary)};
}

Page MakePage(const PredictionReport& report);
Page MakePage(const TraceReport& report);
Page MakePage(const Explanation& explanation);
Page MakePage(const ComparisonReport& report);
Page MakePage(const SweepReport& report);

}  // namespace tidemark
