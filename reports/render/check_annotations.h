// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "reports/summarise/check_report.h"

namespace tidemark {

/// Workflow commands of GitHub Actions, one a line: `::error file=F,line=N,title=T::message` for what fails,
/// `::notice ...` for what has shrunk. GitHub shows at most ten of a kind for a step: the tenth counts the rest.
/// `root` is the folder that GitHub's paths are relative to, `here` the current one, both absolute; a file outside of
/// `root` is named as it is.
/// https://docs.github.com/en/actions/reference/workflow-commands-for-github-actions
std::string CheckAnnotations(const CheckReport& report, const std::string& root, const std::string& here);

}  // namespace tidemark
