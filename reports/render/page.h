// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/embedded_file.h"

namespace tidemark {

// What the HTML report is made of, put into the program when it is built (reports/render/CMakeLists.txt). Each list is
// in the order of file names, which is the order in which the page needs them.

std::span<const EmbeddedFile> ChartScripts();
std::span<const EmbeddedFile> ChartStyles();
std::span<const EmbeddedFile> PageScripts();
std::span<const EmbeddedFile> PageStyles();
std::span<const EmbeddedFile> PageNotices();  ///< licences of what is not ours

}  // namespace tidemark
