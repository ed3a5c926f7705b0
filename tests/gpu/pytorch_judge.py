#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
