// The loss of each step as a picture.
#pragma once

#include <span>
#include <string>

// An SVG of 720 x 400: the losses, thin, and their running mean, thick, over the steps from 1 on.
std::string loss_curve(std::span<const float> losses, const std::string& title);
