// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "reports/summarise/check_report.h"

namespace tidemark {

/// JUnit's XML, as CI systems read it: a test case for the peak of every scenario and one for its budget where it has
/// one, with the numbers as properties. What could not be checked is an error, all else that fails a failure. No times
/// and no host: the same report gives the same bytes.
std::string CheckJunit(const CheckReport& report);

}  // namespace tidemark
