// Package page writes a report for people: one HTML file, and tables as CSV.
//
// The page fetches nothing and runs nothing: tables and charts are made here, long tables fold by <details>, and its own content policy
// forbids the rest. Names that hold markup are text in it. The report's canonical JSON is embedded, and each value that is shown names its
// place there, so that somebody who edits one of the two is found: lapse verify writes the page again and compares the bytes, or, for
// a page of another build, the values.
//
// It is made with html/template, which escapes by where a value is, and a chart writer of one file: a library for charts would be larger than
// this package, and would want a script.
//
//	Document   what is shown; HTML, CSV and signature are made of it
//	New        a report's document
//	Read       what a page has in it
package page
