package main

import (
	"path/filepath"

	"lapse/internal/durable"
)

// reportWriter writes a report to one or more files, and returns their names.
type reportWriter func(a *app, name string, made *madeReport) (files []string, err error)

// reportForm chooses a report's form by its file's suffix.
func reportForm(name string) (reportWriter, error) {
	switch filepath.Ext(name) {
	case ".json":
		return writeReportJSON, nil
	case ".html":
		return writeReportHTML, nil
	case ".csv":
		return writeReportCSV, nil
	}
	return nil, wrongUsage("-o %s: want a name that ends with .json, .html or .csv", name)
}

func writeReportJSON(_ *app, name string, made *madeReport) ([]string, error) {
	return []string{name}, durable.Write(name, made.canonical)
}
