package cli

import (
	"math"
	"strconv"
	"strings"
)

// javaDouble is Double.toString: 2048.0, 1.0E7, 1.0E-4.
func javaDouble(f float64) string { return javaFloat(f, 64) }

// javaFloat is Float.toString or Double.toString.
func javaFloat(f float64, bits int) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	if abs := math.Abs(f); abs != 0 && (abs < 1e-3 || abs >= 1e7) {
		m, exp, _ := strings.Cut(strconv.FormatFloat(f, 'E', -1, bits), "E")
		if !strings.Contains(m, ".") {
			m += ".0"
		}
		sign := ""
		if exp[0] == '-' {
			sign = "-"
		}
		return m + "E" + sign + strings.TrimLeft(exp, "+-0")
	}
	s := strconv.FormatFloat(f, 'f', -1, bits)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}
