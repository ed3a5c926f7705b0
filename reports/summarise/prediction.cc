// SPDX-License-Identifier: Apache-2.0
#include "reports/summarise/prediction.h"

#include "reports/summarise/device_bytes.h"

namespace tidemark {

bool PredictionReport::Fits() const { return tidemark::Fits(Worst().device, device_memory); }

}  // namespace tidemark
