// SPDX-License-Identifier: Apache-2.0
'use strict';

// Quantities as text, in the manner of the other reports: three significant digits, binary units for bytes.

function inUnits(value, units) {
  let [size, name] = units[0];
  for (const unit of units) if (Math.abs(value) >= unit[0] * 0.9995) [size, name] = unit;
  const scaled = value / size;
  const digits = size === 1 && Number.isInteger(scaled) ? 0 : Math.abs(scaled) >= 99.95 ? 0 : Math.abs(scaled) >= 9.995 ? 1 : 2;
  return scaled.toFixed(digits) + ' ' + name;
}

const BYTE_UNITS = [[1, 'B'], [2 ** 10, 'KiB'], [2 ** 20, 'MiB'], [2 ** 30, 'GiB'], [2 ** 40, 'TiB']];
const TIME_UNITS = [[1, 'ns'], [1e3, 'us'], [1e6, 'ms'], [1e9, 's']];

const bytesText = (bytes) => inUnits(bytes, BYTE_UNITS);
const timeText = (nanos) => inUnits(nanos, TIME_UNITS);

/// The unit of an axis up to `largest`: [size, name].
const axisUnit = (largest, units) => units.filter(([size]) => largest >= 2 * size).pop() || units[0];

/// A moment of a view [from, to]: all moments of a view in one unit, with as many digits as its width needs.
function momentText(nanos, from, to) {
  const [size, name] = axisUnit(to, TIME_UNITS);
  const digits = Math.max(0, Math.min(9, Math.ceil(-Math.log10((to - from) / size / 20))));
  return (nanos / size).toFixed(digits) + ' ' + name;
}
