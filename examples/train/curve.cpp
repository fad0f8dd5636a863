// Implements curve.h: draws the loss curve as an SVG.
#include "curve.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

namespace {

constexpr double kWidth = 720, kHeight = 400, kLeft = 60, kRight = 20, kTop = 40, kBottom = 40;

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

// Returns the points of a line through the values, at most as many as there are pixels.
std::string points(const std::vector<double>& values, double low, double high) {
  const size_t steps = std::max<size_t>(1, (values.size() + 719) / 720);
  std::string text;
  for (size_t i = 0; i < values.size(); i += steps) {
    const double part = values.size() < 2 ? 0 : static_cast<double>(i) / static_cast<double>(values.size() - 1);
    const double x = kLeft + part * (kWidth - kLeft - kRight);
    const double y = kTop + (high - values[i]) / (high - low) * (kHeight - kTop - kBottom);
    text += number(x) + "," + number(y) + " ";
  }
  return text;
}

}  // namespace

std::string loss_curve(std::span<const float> losses, const std::string& title) {
  std::vector<double> values, means;
  for (const float loss : losses) {
    if (!std::isfinite(loss)) continue;
    values.push_back(static_cast<double>(loss));
    means.push_back(means.empty() ? values.back() : 0.95 * means.back() + 0.05 * values.back());
  }
  double low = 0, high = 1;
  if (!values.empty()) high = std::max(1e-6, *std::max_element(values.begin(), values.end()));
  std::string svg =
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"720\" height=\"400\" font-family=\"sans-serif\" "
      "font-size=\"12\">\n<rect width=\"720\" height=\"400\" fill=\"white\"/>\n";
  svg += "<text x=\"360\" y=\"22\" text-anchor=\"middle\">" + title + "</text>\n";
  for (int i = 0; i <= 4; ++i) {
    const double value = high * i / 4, y = kTop + (high - value) / high * (kHeight - kTop - kBottom);
    svg += "<line x1=\"60\" x2=\"700\" y1=\"" + number(y) + "\" y2=\"" + number(y) + "\" stroke=\"#dddddd\"/>\n";
    svg += "<text x=\"54\" y=\"" + number(y + 4) + "\" text-anchor=\"end\">" + number(value) + "</text>\n";
    const double step = static_cast<double>(losses.size()) * i / 4, x = kLeft + (kWidth - kLeft - kRight) * i / 4;
    svg += "<text x=\"" + number(x) + "\" y=\"378\" text-anchor=\"middle\">" + number(std::round(step)) + "</text>\n";
  }
  svg += "<text x=\"380\" y=\"395\" text-anchor=\"middle\">step</text>\n";
  svg += "<polyline fill=\"none\" stroke=\"#9ec5e8\" points=\"" + points(values, low, high) + "\"/>\n";
  svg +=
      "<polyline fill=\"none\" stroke=\"#1f5f9f\" stroke-width=\"2\" points=\"" + points(means, low, high) + "\"/>\n";
  return svg + "</svg>\n";
}
