package main

import "lapse/internal/plaintext"

// unhidden is how every result is shown: see plaintext.
func unhidden(text string) string { return plaintext.Text(text) }

// onOneLine is unhidden without line breaks.
func onOneLine(text string) string { return plaintext.Line(text) }
