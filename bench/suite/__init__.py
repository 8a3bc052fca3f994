"""The suite: cases, sections of cases, contenders, and the ratios that wsfast wants to reach."""
