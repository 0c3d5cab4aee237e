package main

import "lapse/internal/plaintext"

// unhidden makes a result safe to show: see plaintext.
func unhidden(text string) string { return plaintext.Text(text) }

// onOneLine is unhidden without line breaks.
func onOneLine(text string) string { return plaintext.Line(text) }
