// Draws the loss of each step.
#pragma once

#include <span>
#include <string>

// Returns an SVG of 720 x 400: the losses as a thin line and their running mean as a thick one, over the steps from 1
// on.
std::string loss_curve(std::span<const float> losses, const std::string& title);
