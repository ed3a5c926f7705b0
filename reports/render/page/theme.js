// SPDX-License-Identifier: Apache-2.0
'use strict';

// What the pictures are drawn with, by what it is for. The page is light or dark as the person's system is, and light on paper.

const LIGHT = {
  ink: '#1f2933', soft: '#5f6c7b', grid: '#eceff3', axis: '#c8d0d9', shade: '#f3f5f8', ground: '#ffffff', label: '#ffffffdd',
  step: '#8d99a6', reserved: '#332288', limit: '#b2182b', error: '#d9480f55', overview: '#a9bdd3', overviewEdge: '#8aa2bd',
  traces: ['#222222', '#e66100', '#7b3fa0', '#0a8f8f', '#c51b7d', '#5a6b1e', '#1f3b99', '#8b5a2b'],   // none of a category
};
const DARK = {
  ink: '#e6e9ed', soft: '#9aa6b2', grid: '#29323b', axis: '#47525e', shade: '#222a32', ground: '#1b2128', label: '#1b2128dd',
  step: '#6b7785', reserved: '#b7a6ff', limit: '#ff7b72', error: '#ff9d4d66', overview: '#3d5875', overviewEdge: '#5f7f9f',
  traces: ['#e6e9ed', '#ff9d4d', '#c596e8', '#3cc3c3', '#ff7ab8', '#a9bd5c', '#8fa6ff', '#d0a179'],
};
const ON_COLOUR = {dark: '#1f2933', light: '#ffffff'};   // text on a box of its own colour, which is the same in both

class Theme {
  constructor() {
    this.scheme = window.matchMedia('(prefers-color-scheme: dark)');
    this.onPaper = false;
  }

  get colours() { return this.scheme.matches && !this.onPaper ? DARK : LIGHT; }

  /// Calls `redraw` when the colours have become others.
  whenChanged(redraw) {
    const paper = (onPaper) => () => {
      this.onPaper = onPaper;
      redraw();
    };
    this.scheme.addEventListener('change', redraw);
    window.addEventListener('beforeprint', paper(true));
    window.addEventListener('afterprint', paper(false));
  }
}

const theme = new Theme();

/// How dygraphs draws what is around the curves.
function graphColours() {
  const {grid, axis, overview, overviewEdge} = theme.colours;
  return {
    gridLineColor: grid, axisLineColor: axis, rangeSelectorPlotFillColor: overview, rangeSelectorPlotStrokeColor: overviewEdge,
    rangeSelectorPlotFillGradientColor: overview, rangeSelectorForegroundStrokeColor: overviewEdge,
    rangeSelectorBackgroundStrokeColor: axis,
  };
}
