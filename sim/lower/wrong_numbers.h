// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tidemark {

/// Why a job's numbers are wrong although its program does what it is told to, and what its user can do about it.
struct WrongNumbers {
  const char* cause = "";  ///< an id of models/findings
  const char* reason = "";
  const char* hint = "";
};

}  // namespace tidemark
