// Package page writes a report for people: one HTML file, and tables as CSV.
//
// The page loads nothing and runs nothing: this package makes tables and charts, <details> folds long tables, and the page's content policy
// forbids the rest. Markup in names appears as text. The page contains the report's canonical JSON, and each value on the page names its place
// in the JSON. So a change of one of the two is detected: lapse verify makes the page again and compares the bytes or, for a page of another
// build, the values.
//
// The package uses html/template, which escapes by context, and draws charts in one file: a library for charts would be larger than this
// package, and would need a script.
//
//	Document   the content of a page, from which HTML, CSV and signature are made
//	New        makes a report's document
//	Read       takes a page apart
package page
