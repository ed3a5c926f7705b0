// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/rational.h"

namespace tidemark {

/// "3/4", "2", "too large to tell".
std::string Text(Rational factor);

/// The nearest number; infinity for what is too large.
double ToDouble(Rational factor);

}  // namespace tidemark
